"""Joules of dense linear algebra against cuBLAS and cuSOLVER, side by side in one run on one GPU.

A row is a factorisation at one order and in one type, batched (10,000 problems) or of one large matrix:
joules of a run and Gflop/s/W, with 95 % intervals, of the library's fastest right form, of the kernel by
default, and of two of its configurations: the fastest and the most thrifty of the few fastest of a short
search. They are chosen in the first half of the rounds; the second half is reported. Rows of one large matrix
also have the hybrid scheme, whose panels the CPU factors: the fastest of a search of its own.

Joules are those of ``tuner.energy``. Windows of all contenders go by turns. Inputs are restored before every
run, and what that takes is measured in windows of its own and taken off. Net joules are without those of the
idle GPU, measured in the same rounds. ``--scope`` says what is counted: ``gpu`` is the board as its sensor
sees it, and neither the host's processors nor its memory, which a note says beside the hybrid scheme;
``gpu+cpu`` adds those where they can be read.
Clocks are as found. Where ten minutes are all there is, --dtype measures one type at a time.

    python benchmarks/kernels/linalg_energy.py --out benchmarks/results/linalg-energy-h200.json
    python benchmarks/kernels/linalg_energy.py --only getrf --n 4096 --dtype float64 --windows 10
"""

import argparse
import random
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from functools import partial
from math import hypot
from pathlib import Path
from statistics import mean
from typing import Any

import numpy as np
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from linalg_contest import (
    QUICK,
    QUICK_MS,
    Contender,
    Field,
    Machine,
    Run,
    Searcher,
    Space,
    as_json,
    field_of,
    order,
    seconds,
    shown,
)
from linalg_large_contest import OPERATIONS as LARGE
from linalg_large_contest import (
    HybridFound,
    LargeCase,
    LargeLibraries,
    LargeSets,
    Opened,
    cpu_facts,
    hybrid_found,
    opened,
)
from linalg_libraries import BATCH, DTYPES, AnySets, Case, Sets
from linalg_libraries import OPERATIONS as BATCHED
from provenance import provenance

import tuner
from tuner.compiler.compiler import Compiler
from tuner.devices.cuda import probe
from tuner.devices.cuda.code import CodeCache
from tuner.joules import Region, RegionEnergy
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import TunerError

# --- windows by turns -----------------------------------------------------------------------------
#
# A window runs a contender again and again for some tenths of a second, its inputs restored before each run.
# A window that only restores, and one in which nothing runs, belong to every round of windows: what they take
# is subtracted. All windows of a round are compared with each other.


COVERED = 0.95
SIGMAS = 1.96  # standard uncertainties to either side cover that
RESTORING, IDLE = "restoring", "idle"
_LEAD = 0.25  # of a window, before it: the power of what ran before has settled
_REST_S = 0.3  # before a window without work


Meter = AbstractContextManager[Region]
"""What ``tuner.energy`` gives."""


@dataclass
class Window:
    """What a window took, for each run in it; of an idle one for each second.

    Attributes:
        seconds: of a run.
        joules: of a run.
        sigma_j: standard uncertainty of the joules.
    """

    seconds: float
    joules: float
    sigma_j: float


@dataclass
class Windows:
    """Windows of all contenders.

    Attributes:
        of: by name; the windows of a round have the same place.
        counted: devices, scopes and sensors.
        notes: what was not as it should be.
    """

    of: dict[str, list[Window]]
    counted: list[dict[str, str]] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def measured_windows(
    machine: Machine,
    contenders: Sequence[Contender],
    sets: AnySets,
    meter: Meter,
    *,
    count: int,
    window_s: float,
) -> Windows:
    """Windows of contenders, of restoring, and of nothing, in an order drawn anew in every round.

    Args:
        machine: the GPU.
        contenders: that run.
        sets: the arrays they work on.
        meter: of energy.
        count: rounds.
        window_s: how long a window is, about.
    """
    loops: dict[str, Callable[[], Any]] = {RESTORING: loop_of(machine, sets, None)}
    loops |= {one.name: loop_of(machine, sets, one) for one in contenders}
    runs = {name: max(1, round(window_s / run_s(machine, loop))) for name, loop in loops.items()}
    found = Windows({name: [] for name in (*loops, IDLE)})
    rng = random.Random(len(loops))  # noqa: S311 - an order
    for _ in range(count):
        for name in rng.sample([*loops, IDLE], len(loops) + 1):
            if name == IDLE:
                machine.cp.cuda.runtime.deviceSynchronize()
                time.sleep(_REST_S)
                energy, times = _window(meter, partial(time.sleep, window_s)), window_s
            else:
                repeat(loops[name], 1 + int(_LEAD * runs[name]))
                energy, times = _window(meter, partial(repeat, loops[name], runs[name])), runs[name]
            window = Window(energy.seconds / times, energy.joules / times, energy.uncertainty_j / times)
            found.of[name].append(window)
            _note(found, energy)
    return found


def repeat(loop: Callable[[], Any], count: int) -> None:
    """Run something several times."""
    for _ in range(count):
        loop()


def _note(found: Windows, energy: RegionEnergy) -> None:
    parts = [{"device": part.device, "scope": part.scope, "sensor": part.sensor} for part in energy.parts]
    found.counted += [part for part in parts if part not in found.counted]
    found.notes += [note for note in energy.notes if note not in found.notes]


def _window(meter: Meter, work: Callable[[], None]) -> RegionEnergy:
    with meter as region:
        work()
    return region.result()


def loop_of(machine: Machine, sets: AnySets, contender: Contender | None) -> Callable[[], Any]:
    """Restores all sets and works on them: one graph where it can be captured."""

    def both(stream: Any) -> None:
        with stream:
            sets.restore()
        if contender is not None and contender.enqueue is not None:
            contender.enqueue(stream)

    current = machine.cp.cuda.get_current_stream
    graph = machine.graph(both) if contender is None or contender.graph else None
    if graph is None:
        return lambda: both(current())
    return lambda: graph.launch(current())


def run_s(machine: Machine, loop: Callable[[], Any]) -> float:
    """Seconds of a run, from a few; of one that takes long, from fewer."""
    times: list[float] = []
    while len(times) < QUICK and sum(times) < QUICK_MS:
        times.append(machine.timer.once(loop))
    return max(1e-6, 1e-3 * min(times))


@dataclass(frozen=True)
class Figure:
    """A mean of windows with half of its 95 % interval."""

    value: float
    half: float

    @staticmethod
    def of(values: Sequence[float], sigmas: Sequence[float]) -> "Figure":
        """The wider of two intervals: of what the sensors state, and of how windows scatter (Student's t)."""
        count = len(values)
        stated = SIGMAS * hypot(*sigmas) / count
        if count < 2:
            return Figure(float(values[0]), stated)
        t = float(stats.t.ppf((1 + COVERED) / 2, count - 1))
        scattered = t * float(np.std(values, ddof=1)) / count**0.5
        return Figure(float(np.mean(values)), max(stated, scattered))

    def shown(self) -> dict[str, float]:
        """For JSON."""
        return {"value": self.value, "half": self.half}


@dataclass(frozen=True)
class Taken:
    """What a run takes, round by round, without what is restored.

    Attributes:
        seconds: of a run.
        gross_j: joules of a run.
        net_j: these without the joules of the idle GPU.
        sigmas_j: standard uncertainties of ``gross_j``.
        net_sigmas_j: same of ``net_j``.
    """

    seconds: list[float]
    gross_j: list[float]
    net_j: list[float]
    sigmas_j: list[float]
    net_sigmas_j: list[float]


def taken(windows: Mapping[str, Sequence[Window]], name: str, places: slice) -> Taken:
    """Of a contender, in some rounds.

    Raises:
        ValueError: a run takes no time beyond that of what is restored.
    """
    found = Taken([], [], [], [], [])
    together = zip(
        *(windows[one][places] for one in (name, RESTORING, IDLE)),
        strict=True,
    )
    for run, restoring, idle in together:
        seconds = run.seconds - restoring.seconds
        if seconds <= 0:
            raise ValueError(f"{name} takes no longer than restoring; --window must be longer")
        sigma_j = hypot(run.sigma_j, restoring.sigma_j)
        found.seconds.append(seconds)
        found.gross_j.append(run.joules - restoring.joules)
        found.sigmas_j.append(sigma_j)
        found.net_j.append(found.gross_j[-1] - idle.joules * seconds)
        found.net_sigmas_j.append(hypot(sigma_j, idle.sigma_j * seconds))
    return found


# --- a row: the first half of the windows chooses, the second is reported -------------------------


@dataclass(frozen=True)
class EnergyBegin(Opened):
    """What a row begins with; of a batch, inputs are drawn on the device."""

    def sets(self, cp: Any) -> LargeSets | Sets:
        """The arrays on the device."""
        if isinstance(self.space.case, LargeCase):
            return self.on(cp)
        return Sets(cp, self.space.plans[self.space.item.default])


def begin_of(searcher: Searcher, case: Case, *, hybrid: bool = False) -> EnergyBegin:
    """Compile what a row begins with; of one large matrix with the hybrid scheme, where it is asked for.

    Raises:
        TunerError: nothing is left of the space.
    """
    if isinstance(case, LargeCase):
        found = opened(searcher, case, hybrid=hybrid)
        return EnergyBegin(found.space, found.first, found.inputs, found.hybrid)
    space, first = searcher.opened(case)
    return EnergyBegin(space, first, {})


def energy_contest(
    machine: Machine,
    libraries: LargeLibraries,
    begin: EnergyBegin,
    meter: Meter,
    *,
    budget_s: float,
    hybrid_s: float,
    count: int,
    window_s: float,
) -> dict[str, Any]:
    """A row: the library, the kernel by default, its fastest and most thrifty configuration, and hybrid.

    Args:
        machine: the GPU.
        libraries: the peers.
        begin: what is compiled.
        meter: of energy.
        budget_s: for the search of the kernel.
        hybrid_s: for that of the hybrid scheme.
        count: windows of each.
        window_s: how long one is, about.
    """
    begun_s = time.monotonic()
    space, sets = begin.space, begin.sets(machine.cp)
    forms = (
        libraries.factorizations(space.case, sets)
        if isinstance(sets, LargeSets)
        else [
            form for form in libraries.forms(space.case, sets) if form.restore is None
        ]  # as windows restore
    )
    field = field_of(machine, space, begin.first, sets, forms=forms, ends_s=begun_s + budget_s)
    hybrid: HybridFound | None = None
    if begin.hybrid is not None and isinstance(sets, LargeSets):
        hybrid = hybrid_found(machine, begin.hybrid, sets, hybrid_s)
    beside = None if hybrid is None else hybrid.best
    running = [*field.right_peers[:1], *field.right_own, *([] if beside is None else [beside])]
    found = measured_windows(machine, running, sets, meter, count=count, window_s=window_s)
    row: dict[str, Any] = {
        "operation": space.case.operation,
        "n": space.case.n,
        "dtype": space.case.dtype,
        "batch": sets.batch,
        "windows": count // 2,
        "window_s": window_s,
        "flops": _flops(space),
        "configurations": {"measured": len(field.own), "candidates": len(space.item.candidates)},
        "counted": found.counted,
        "notes": [*found.notes, *([] if beside is None else _uncounted(found))],
        "peers_tried": [shown(one, sets.count) for one in field.peers],
        "wrong": [shown(one, sets.count) for one in field.finalists if not one.right],
    }
    if hybrid is not None:
        row["hybrid_tried"] = hybrid.facts(sets.count)
    row |= figures(space, field, found, half=count // 2, sets=sets.count, hybrid=beside)
    return {**row, "seconds": round(time.monotonic() - begun_s, 2)}


def _uncounted(found: Windows) -> list[str]:
    """A note where joules of the CPU are not counted."""
    if any(part["scope"] != "gpu" for part in found.counted):
        return []
    return ["the joules of the CPU, which factors the panels of hybrid, are not counted (--scope gpu+cpu)"]


def _flops(space: Space) -> float:
    return float(space.plans[space.item.default].work.operations)


def figures(
    space: Space, field: Field, found: Windows, *, half: int, sets: int, hybrid: Contender | None = None
) -> dict[str, Any]:
    """Of the second half of the rounds, of what the first half has chosen."""
    choosing, reporting = slice(0, half), slice(half, 2 * half)
    flops = _flops(space)
    own = field.right_own
    first = {one.name: taken(found.of, one.name, choosing) for one in own}
    chosen = {
        "peer": next(iter(field.right_peers), None),
        "default": next((one for one in own if one.configuration == space.item.default), None),
        "fastest": min(own, key=lambda one: mean(first[one.name].seconds), default=None),
        "thriftiest": min(own, key=lambda one: mean(first[one.name].gross_j), default=None),
        "hybrid": hybrid,
    }
    row: dict[str, Any] = {}
    for name, one in chosen.items():
        if one is None:
            row[name] = None
            continue
        row[name] = _figures(taken(found.of, one.name, reporting), flops, sets)
        row[name] |= {"name": one.name, "configuration": as_json(one.configuration), "graph": one.graph}
    idle = found.of[IDLE][reporting]
    row["idle_w"] = Figure.of([one.joules for one in idle], [one.sigma_j for one in idle]).shown()
    peer, thriftiest = chosen["peer"], chosen["thriftiest"]
    row["same"] = chosen["fastest"] is thriftiest
    row["gain"] = row["net_gain"] = None
    if peer is not None and thriftiest is not None:
        ours, theirs = (taken(found.of, one.name, reporting) for one in (thriftiest, peer))
        row["gain"] = _gain(theirs.gross_j, theirs.sigmas_j, ours.gross_j, ours.sigmas_j)
        row["net_gain"] = _gain(theirs.net_j, theirs.net_sigmas_j, ours.net_j, ours.net_sigmas_j)
    return row


def _figures(run: Taken, flops: float, sets: int) -> dict[str, Any]:
    """Of one run on one set."""
    seconds = [one / sets for one in run.seconds]
    row: dict[str, Any] = {"us": 1e6 * mean(seconds)}
    for word, joules, sigmas in (
        ("", run.gross_j, run.sigmas_j),
        ("net_", run.net_j, run.net_sigmas_j),
    ):
        of_set = [one / sets for one in joules]
        of_sigmas = [one / sets for one in sigmas]
        row[f"{word or 'gross_'}j"] = Figure.of(of_set, of_sigmas).shown()
        watts = [one / at for one, at in zip(of_set, seconds, strict=True)]
        row[f"{word}w"] = Figure.of(
            watts, [one / at for one, at in zip(of_sigmas, seconds, strict=True)]
        ).shown()
        row[f"{word}gflops_per_w"] = _inverse(1e-9 * flops, of_set, of_sigmas)
    return row


def _inverse(above: float, joules: Sequence[float], sigmas: Sequence[float]) -> dict[str, float] | None:
    """Something by joules; None where they are not above 0."""
    if min(joules) <= 0:
        return None
    values = [above / one for one in joules]
    return Figure.of(
        values, [value * sigma / one for value, sigma, one in zip(values, sigmas, joules, strict=True)]
    ).shown()


def _gain(
    theirs: Sequence[float], their_sigmas: Sequence[float], ours: Sequence[float], our_sigmas: Sequence[float]
) -> dict[str, float] | None:
    """The library's joules by the kernel's, round by round; None where they are not above 0."""
    if min(*theirs, *ours) <= 0:
        return None
    ratios = [one / other for one, other in zip(theirs, ours, strict=True)]
    relative = [
        hypot(sigma / one, other_sigma / other)
        for one, sigma, other, other_sigma in zip(theirs, their_sigmas, ours, our_sigmas, strict=True)
    ]
    return Figure.of(ratios, [ratio * one for ratio, one in zip(ratios, relative, strict=True)]).shown()


FACTORIZATIONS = tuple(name for name in BATCHED if name.partition("-")[0] in LARGE)
SIZES = {**dict.fromkeys(BATCHED, (16, 64)), **dict.fromkeys(LARGE, (1024, 4096, 16384))}
_MOST_BATCHED = 128  # order
_COUNTED = (("rows", "rows"), ("failed", "failed"), ("left_out", "left out"))


def parsed(words: Sequence[str] | None = None) -> argparse.Namespace:
    """The command line."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    add = parser.add_argument
    default = [*FACTORIZATIONS, *LARGE]
    add("--only", nargs="+", choices=(*BATCHED, *LARGE), default=default, metavar="KERNEL")
    add(
        "--n",
        nargs="+",
        type=order(2, 32768),
        help="orders; batched kernels take those up to 128, others all",
    )
    add("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    add("--scope", default="gpu", help="what is counted, as tuner.energy takes it; gpu")
    add("--sensor", help="the GPU's reading by its name; the best that answers")
    add("--windows", type=_even, default=6, help="of each contender, even; half choose, half are reported; 6")
    add("--window", type=seconds, default=0.4, metavar="SECONDS", help="length of a window; 0.4")
    add("--budget", type=seconds, default=4.0, metavar="SECONDS", help="for a row's search; 4")
    add("--hybrid", type=seconds, default=2.0, metavar="SECONDS", help="for a row's hybrid search; 2")
    add("--no-hybrid", action="store_true", help="leave the hybrid scheme out")
    add("--limit", type=seconds, default=540.0, metavar="SECONDS", help="for all; later rows are left out")
    add("--out", type=Path, help="JSON, written after every row")
    return parser.parse_args(words)


def cases(options: argparse.Namespace) -> list[Case]:
    """The rows: small orders first."""
    found: list[Case] = []
    for operation in options.only:
        sizes = options.n or SIZES[operation]
        large = operation in LARGE
        for n in sizes:
            if large or n <= _MOST_BATCHED:
                found += [(LargeCase if large else Case)(operation, n, dtype) for dtype in options.dtype]
    return sorted(found, key=lambda case: case.n)


def main(words: Sequence[str] | None = None) -> int:
    """Measure, print, write; the exit code."""
    options = parsed(words)
    ends_s = time.monotonic() + options.limit
    rows = cases(options)
    if not rows:
        print(f"--n {' '.join(map(str, options.n))}: batched kernels take orders up to 128", file=sys.stderr)
        return 2
    try:
        cp = probe.open_cupy(0)
        limits = probe.gpu_limits(cp, 0)
        compiler = Compiler(limits.architecture)
        meter = meter_of(options.scope, options.sensor)
    except TunerError as error:
        print(f"{error}\nThis benchmark needs a CUDA GPU whose energy can be read.", file=sys.stderr)
        return 2
    with compiler:
        catalog = Catalog.load()
        libraries = LargeLibraries(cp)
        searchers = [Searcher(limits, compiler, catalog, batch) for batch in (BATCH, 1)]
        machine = Machine(cp, CodeCache(cp, compiler, limits), libraries, searchers[0])
        facts = {"libraries": libraries.versions(), "missing": libraries.missing, "scope": options.scope}
        facts["cpu"] = None if options.no_hybrid else cpu_facts()
        print(f"{facts['libraries']}; not found: {facts['missing']}", flush=True)
        document = {"provenance": provenance(), **facts, "rows": [], "failed": [], "left_out": []}

        def begun(case: Case) -> EnergyBegin:
            return begin_of(searchers[isinstance(case, LargeCase)], case, hybrid=not options.no_hybrid)

        def measured(begin: EnergyBegin, budget_s: float) -> dict[str, Any]:
            machine.searcher = searchers[isinstance(begin.space.case, LargeCase)]
            return energy_contest(
                *(machine, libraries, begin, meter),
                budget_s=budget_s,
                hybrid_s=options.hybrid,
                count=options.windows,
                window_s=options.window,
            )

        run = Run(cp, begun, measured, line, options.budget, ends_s, options.out, ahead=False)
        ended = run.rows(rows, document)
    counts = [f"{len(document[key])} {word}" for key, word in _COUNTED]
    print("; ".join(counts))
    return ended


def meter_of(scope: str, sensor: str | None) -> Meter:
    """The project's own meter of the GPU.

    Raises:
        TunerError: no reading answers.
    """
    return tuner.energy(scope, device="cuda:0", sensor=sensor)


def line(row: dict[str, Any]) -> str:
    """A row for the terminal."""
    parts = [f"{row['operation']} {row['dtype']} n={row['n']:<5} idle {row['idle_w']['value']:.0f} W"]
    for name in ("peer", "default", "fastest", "thriftiest", "hybrid"):
        one = row[name]
        if one is None:
            parts.append(f"{name} -")
            continue
        parts.append(
            f"{name} {one['us']:.1f} us {_shown(one['gross_j'])} J {_shown(one['gflops_per_w'])} GF/s/W"
        )
    parts.append(f"gain {_shown(row['gain'])}")
    parts += [f"{part['device']} {part['scope']} by {part['sensor']}" for part in row["counted"]]
    return "  ".join([*parts, *row["notes"]])


def _shown(figure: dict[str, float] | None) -> str:
    return "-" if figure is None else f"{figure['value']:.4g} ± {figure['half']:.2g}"


def _even(text: str) -> int:
    if not text.isdecimal() or int(text) < 2 or int(text) % 2:
        raise argparse.ArgumentTypeError(f"{text!r} is no number of windows; they must be even, 2 or more")
    return int(text)


if __name__ == "__main__":
    sys.exit(main())
