"""Searches, contenders and rows of linear algebra: kernels and libraries on the same arrays."""

import argparse
import random
import sys
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass, field
from math import inf, isfinite
from pathlib import Path
from typing import Any, cast

sys.path.insert(0, str(Path(__file__).parents[1]))  # shared with other benchmarks

from cold_timing import Timer, median, outside_interval, spread
from linalg_libraries import BATCH, DTYPES, AnySets, Case, Form, LinalgLibraries, Sets
from provenance import command_line, save

from tuner.compiler.compiler import Compiler
from tuner.compiler.contract import plan_resources
from tuner.devices.base import Device
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.driver import DriverCalls
from tuner.devices.cuda.lanes import MAIN, PrioritisedGraph, SideStreams, new_stream
from tuner.devices.cuda.launches import StageLaunch, Step, has_host_stage
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import CompileError, TunerError
from tuner.model.jobs import DeviceIdentity, DeviceLimits
from tuner.model.plan import Configuration, Plan, Progress, Resources, TunableValue
from tuner.problems.base import Deviation
from tuner.search.candidates import PreparedWorkload, judge, prepare
from tuner.search.explaining import analytical_choice

# --- a short search: the analytical front-runners first, then neighbours --------------------------


TOGETHER = 12  # configurations compiled at a time: as many children as a compiler has


@dataclass
class Space:
    """The configurations of a case.

    Attributes:
        case: the row.
        item: all candidates.
        analytical: choice of the analytical model; None without one.
        tried: compiled, or refused by the compiler.
        why: there is no analytical choice.
    """

    case: Case
    item: PreparedWorkload
    analytical: Configuration | None = None
    tried: set[Configuration] = field(default_factory=set)
    why: str = ""

    @property
    def plans(self) -> Mapping[Configuration, Plan]:
        """Of the candidates and the default."""
        return self.item.plans


@dataclass(frozen=True)
class CompilingGpu:
    """As much of a ``tuner.devices.base.Device`` as candidates are compiled with."""

    identity: DeviceIdentity
    limits: DeviceLimits
    compiler: Compiler

    def resources(
        self, plans: Sequence[Plan], progress: Progress | None = None
    ) -> list[tuple[Resources, ...] | CompileError]:
        """Compile plans; nothing is loaded."""
        return plan_resources(self.compiler, plans, progress)


class Searcher:
    """Compiles for one GPU; may be used by several threads.

    Args:
        limits: of the GPU.
        compiler: for it.
        catalog: the kernels.
        batch: problems of a workload.
    """

    def __init__(
        self, limits: DeviceLimits, compiler: Compiler, catalog: Catalog, batch: int = BATCH
    ) -> None:
        self._limits, self._catalog, self._batch = limits, catalog, batch
        identity = DeviceIdentity("cuda:0", "", "", "", compiler.nvrtc_version, modelled=False)
        self._device = CompilingGpu(identity, limits, compiler)

    def opened(self, case: Case) -> tuple[Space, list[Configuration]]:
        """The space of a case, with what is measured first: default, analytical choice, its rivals.

        Of every text, such as that of an algorithm, the configuration nearest to the default is among them.

        Raises:
            TunerError: nothing is left of the space.
        """
        kernel = self._catalog.kernel(case.operation)
        workload = kernel.workload(case.sizes, batch=self._batch)
        device = cast("Device", self._device)
        (item,) = prepare([(kernel, workload)], device)
        space = Space(case, item)
        try:
            choice, known = analytical_choice(item, device)
            if choice is None:
                space.why = "analytical = false"
            else:
                space.analytical = choice.configuration
            rivals = [one.configuration for one in known.candidates if not one.declared]
        except TunerError as error:
            space.why, rivals = str(error), []
        first = [one for one in (item.default, space.analytical) if one is not None]
        return space, self.compiled(space, [*first, *rivals, *_of_texts(item)])

    def compiled(self, space: Space, configurations: Iterable[Configuration]) -> list[Configuration]:
        """Those that compile and are allowed; the default, wherever it compiles."""
        new = [c for c in dict.fromkeys(configurations) if c not in space.tried and c in space.plans]
        space.tried.update(new)
        plans = [space.plans[one] for one in new]
        left = []
        for plan, report in zip(plans, self._device.resources(plans), strict=True):
            verdict = judge(space.item, plan, report, self._limits)
            default = plan.configuration == space.item.default and verdict.candidate is not None
            if default or not verdict.dropped:
                left.append(plan.configuration)
        return left

    def more(self, space: Space, best: Iterable[Configuration], rng: random.Random) -> list[Configuration]:
        """The next to measure: those nearest to the best, in any order; none when all are known."""
        centres = [set(dict(one).items()) for one in best]
        pool = [one.configuration for one in space.item.candidates if one.configuration not in space.tried]
        rng.shuffle(pool)

        def distance(configuration: Configuration) -> int:
            values = set(dict(configuration).items())
            return min((len(values ^ centre) for centre in centres), default=0)

        return self.compiled(space, sorted(pool, key=distance)[:TOGETHER])


def _of_texts(item: PreparedWorkload) -> list[Configuration]:
    """Of every text that the default does not have, the candidate that is nearest to it."""
    default = set(dict(item.default).items())
    nearest: dict[tuple[str, TunableValue], Configuration] = {}
    candidates = [one.configuration for one in item.candidates]
    for one in sorted(candidates, key=lambda candidate: len(set(dict(candidate).items()) ^ default)):
        for name, value in dict(one).items():
            if isinstance(value, str) and (name, value) not in default:
                nearest.setdefault((name, value), one)
    return list(nearest.values())


def as_json(configuration: Configuration | None) -> dict[str, Any] | None:
    """A configuration for JSON."""
    return None if configuration is None else dict(configuration)


# --- contenders, and the rows of tables -----------------------------------------------------------


@dataclass
class Contender:
    """What is timed.

    Attributes:
        name: its key.
        run: works on all sets.
        prepare: restores them; not timed.
        deviation: of its answers; None where they were not looked at.
        quick_ms: of all sets, before the rounds.
        trouble: why it does not run, or empty.
        configuration: of the kernel; None for a library.
        form: of the library.
        graph: whether the sets are one CUDA graph.
        times_ms: of the rounds.
    """

    name: str
    run: Callable[[], None]
    prepare: Callable[[], None]
    deviation: Deviation | None = None
    quick_ms: float = inf
    trouble: str = ""
    configuration: Configuration | None = None
    form: Form | None = None
    graph: bool = True
    times_ms: Sequence[float] = ()

    @property
    def right(self) -> bool:
        """Its answers were looked at, and are right."""
        return self.deviation is not None and bool(self.deviation.ok)

    def half_ms(self, second: bool) -> Sequence[float]:
        """The times that choose, or those that are reported."""
        middle = len(self.times_ms) // 2
        return self.times_ms[middle:] if second else self.times_ms[:middle]


def shown(contender: Contender, sets: int) -> dict[str, Any]:
    """A contender that was tried."""
    row: dict[str, Any] = {"name": contender.name}
    if contender.trouble:
        return {**row, "trouble": contender.trouble}
    row |= {"us": 1e3 * contender.quick_ms / sets, "graph": contender.graph}
    if contender.deviation is not None:
        row |= {"error": contender.deviation.error, "what": contender.deviation.what}
        row |= {"allowed": contender.deviation.allowed, "correct": contender.right}
    return row


def compared(
    space: Space, own: Sequence[Contender], peers: Sequence[Contender], sets: int, copy_gb_s: float | None
) -> dict[str, Any]:
    """Own figures, those of the best peer, and ratios; with the rate of a copy also how near it they are."""
    right = {one.configuration: one for one in own if one.right}
    peer = _fastest(peers)
    row: dict[str, Any] = {"peer": None if peer is None else timed(peer, sets)}
    forms = {
        "default": right.get(space.item.default),
        "analytical": right.get(space.analytical),
        "best": _fastest(list(right.values())),
    }
    for name, one in forms.items():
        if one is None:
            row[name] = None
            continue
        row[name] = {**timed(one, sets), "configuration": as_json(one.configuration)}
        if copy_gb_s is not None and one.configuration is not None:
            moved = space.plans[one.configuration].work.bytes
            row[name]["roofline"] = moved / (1e3 * row[name]["us"] * copy_gb_s)
        if peer is not None:
            row[name]["ratio"] = _ratio(peer, one)
    row["correct"] = row["best"] is not None
    untuned, target = row["default"] if space.analytical is None else row["analytical"], space.case.target
    row["met"] = None
    if target is not None and peer is not None and row["correct"]:
        row["met"] = untuned is not None and untuned["ratio"]["median"] >= target
    return row


def _fastest(contenders: Sequence[Contender]) -> Contender | None:
    """By the first half of the rounds, of which nothing else is reported."""
    known = [one for one in contenders if one.times_ms]
    return min(known, key=lambda one: median(list(one.half_ms(second=False))), default=None)


def timed(contender: Contender, sets: int) -> dict[str, Any]:
    """Figures of a contender, by the second half of its rounds."""
    times = [1e3 * ms / sets for ms in contender.half_ms(second=True)]
    row: dict[str, Any] = {"us": median(times), "spread_us": spread(times), "rounds": len(times)}
    row["graph"] = contender.graph
    if contender.form is not None:
        row |= {"name": contender.form.name, "form": contender.form.settings}
    if contender.deviation is not None:
        row |= {"error": contender.deviation.error, "what": contender.deviation.what}
        row["correct"] = contender.right
    return row


def _ratio(peer: Contender, own: Contender) -> dict[str, float]:
    """Median of the ratios of the rounds, and its 95 % interval by the sign test."""
    pairs = zip(peer.half_ms(second=True), own.half_ms(second=True), strict=True)
    ratios = sorted(one / other for one, other in pairs)
    edge = outside_interval(len(ratios))
    return {"median": median(ratios), "low": ratios[edge], "high": ratios[-1 - edge]}


# --- runs: row after row, written as they come ----------------------------------------------------


LEAST_S = 0.2  # of a row's search
Document = dict[str, Any]


@dataclass(frozen=True)
class Run:
    """What rows have in common.

    Attributes:
        cp: CuPy.
        opened: compiles what a row begins with.
        measured: the row, from what was opened and from seconds for its search.
        line: of the row, for the terminal.
        budget_s: for a row, with its search.
        ends_s: on the monotonic clock; rows that would begin later are left out.
        out: where the document is written after every row; None for nowhere.
        ahead: open a row in another thread while the one before is measured. Not where Python is busy with
            it: the thread that measures would wait for the interpreter between its events.
    """

    cp: Any
    opened: Callable[[Case], Any]
    measured: Callable[[Any, float], Document]
    line: Callable[[Document], str]
    budget_s: float
    ends_s: float
    out: Path | None
    ahead: bool = True

    def rows(self, cases: Sequence[Case], document: Document) -> int:
        """Measure all rows into a document; the exit code."""
        thread = ThreadPoolExecutor(1)
        opening: Future[Any] | None = None
        try:
            for place, case in enumerate(cases):
                left_s = self.ends_s - time.monotonic()
                if left_s <= 0:
                    document["left_out"] = [vars(one) for one in cases[place:]]
                    break
                budget_s = max(LEAST_S, min(self.budget_s, left_s / (len(cases) - place)))
                begun_s = time.monotonic()
                try:
                    opened = (opening or thread.submit(self.opened, case)).result()
                except TunerError as error:
                    _failed(document, case, str(error))
                    opened = None
                following = cases[place + 1 : place + 2] if self.ahead else []
                opening = thread.submit(self.opened, following[0]) if following else None
                if opened is not None:
                    waited_s = time.monotonic() - begun_s
                    self._row(case, opened, max(LEAST_S, budget_s - waited_s), document)
                save(self.out, document)
        except KeyboardInterrupt:
            print("interrupted; the rows so far are kept", file=sys.stderr)
            return 130
        finally:
            thread.shutdown(wait=False, cancel_futures=True)
            save(self.out, document)
        return 0

    def _row(self, case: Case, opened: Any, budget_s: float, document: Document) -> None:
        refusals = (self.cp.cuda.driver.CUDADriverError, self.cp.cuda.runtime.CUDARuntimeError)
        try:
            row = self.measured(opened, budget_s)
        except (TunerError, RuntimeError, MemoryError, ValueError, *refusals) as error:
            _failed(document, case, f"{type(error).__name__}: {error}")
        else:
            document["rows"].append(row)
            print(self.line(row), flush=True)
        self.cp.get_default_memory_pool().free_all_blocks()


def _failed(document: Document, case: Case, why: str) -> None:
    document["failed"].append({**vars(case), "why": why})
    print(f"{case}: {why}", flush=True)


def summary(document: Document) -> str:
    """How many rows there are, and what became of them."""
    rows = document["rows"]
    met = sum(row["met"] is True for row in rows)
    asked = sum(row["met"] is not None for row in rows)
    wrong = sum(bool(row["wrong"]) or not row["correct"] for row in rows)
    return (
        f"{len(rows)} rows: {met} of {asked} targets met; {wrong} with wrong answers;"
        f" {len(document['failed'])} failed; {len(document['left_out'])} left out for want of time"
    )


def peer_words(row: Mapping[str, Any]) -> str:
    """The fastest right form of a library; why there is none."""
    peer = row["peer"]
    if peer is None:
        tried = "; ".join(one.get("trouble", "wrong") for one in row["peers_tried"]) or "no library"
        return f"no peer ({tried})"
    words = [peer["name"], peer["form"], "" if peer["graph"] else "without a graph"]
    return ", ".join(word for word in words if word)


def end_words(row: Mapping[str, Any]) -> list[str]:
    """What every line ends with: the target, what was measured, and who answered wrong."""
    met = {True: "met", False: "MISSED", None: "-"}[row["met"]]
    measured = row["configurations"]
    wrong = ", ".join(one["name"] for one in row["wrong"])
    return [
        met if row["target"] is None else f"{met} (>= {row['target']:.2f} x the peer)",
        f"{measured['measured']} of {measured['candidates']} in {row['seconds']:.1f} s",
        *([f"WRONG: {wrong}"] if wrong else ()),
    ]


def options_of(
    about: str | None, operations: Sequence[str], sizes: Sequence[int], least: int, most: int
) -> argparse.ArgumentParser:
    """The command line of a contest over operations, orders and types."""
    parser = command_line(about)
    parser.add_argument("--only", nargs="+", choices=operations, default=list(operations), metavar="KERNEL")
    orders = f"orders, {least} to {most}"
    parser.add_argument("--n", nargs="+", type=_order(least, most), default=list(sizes), help=orders)
    parser.add_argument("--dtype", nargs="+", choices=DTYPES, default=list(DTYPES))
    parser.add_argument(
        "--budget", type=_seconds, default=5.0, metavar="SECONDS", help="for a row, with the search; 5"
    )
    parser.add_argument(
        "--limit", type=_seconds, default=540.0, metavar="SECONDS", help="for all; later rows are left out"
    )
    return parser


def _seconds(text: str) -> float:
    """Of an option.

    Raises:
        argparse.ArgumentTypeError: they are not finite, or not above 0.
    """
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"{text!r} are no seconds; they must be above 0")
    return value


def _order(least: int, most: int) -> Callable[[str], int]:
    """Makes orders of matrices of an option's words.

    Raises:
        argparse.ArgumentTypeError: a word is no whole number within the limits.
    """

    def parsed(text: str) -> int:
        if not text.isdecimal() or not least <= int(text) <= most:
            raise argparse.ArgumentTypeError(f"{text!r} is no order; orders are {least} to {most}")
        return int(text)

    return parsed


QUICK = 3  # repeats before the rounds
QUICK_MS = 1000.0  # of these, after which no other begins
ROUNDS = (12, 24)  # fewest and most; the first half chooses, the second is reported
ROUNDS_MS = 600.0  # of a row, where the fewest allow it
OWN_FINALISTS, PEER_FINALISTS = 3, 2
_LEAD_BYTES = 2**30  # set to zero before calls that are no graph, so that the GPU does not wait for the host
_CALL_S, _LEAD_S = 15e-6, 2.5e-4  # of a call on the host, at most; of the lead on the GPU, at least


class Machine:
    """The GPU with its timer, its libraries and its code.

    Args:
        cp: CuPy.
        code: loads kernels.
        libraries: the peers.
        searcher: compiles.
    """

    def __init__(self, cp: Any, code: CodeCache, libraries: LinalgLibraries, searcher: Searcher) -> None:
        self.cp, self.code, self.libraries, self.searcher = cp, code, libraries, searcher
        self.timer, self._driver = Timer(cp), DriverCalls()
        self._open_streams()
        self._lead = cp.empty(_LEAD_BYTES, "uint8")
        self._refusals = (
            *(TunerError, RuntimeError, MemoryError),
            *(cp.cuda.driver.CUDADriverError, cp.cuda.runtime.CUDARuntimeError),
        )

    def library(self, form: Form, sets: AnySets) -> Contender:
        """A library's form, checked and timed a few times."""

        def enqueue(stream: Any, places: Sequence[int]) -> None:
            for place in places:
                form.call(place, stream.ptr)

        def run() -> None:
            form.restore()
            enqueue(self.cp.cuda.get_current_stream(), [0])

        def restore() -> None:
            sets.restore()
            form.restore()

        made = self.timed(form.key, enqueue, sets, restore)
        made.form = form
        if not made.trouble:
            made.deviation = self._checked(run, sets, form.converted)
        return made

    def kernel(self, space: Space, configuration: Configuration, sets: AnySets) -> Contender:
        """A configuration of the kernel, timed a few times."""
        try:
            program = self.code.program(space.plans[configuration])
            sets = sets.of(space.plans[configuration])
            steps = [program.bound(arrays) for arrays in sets.arrays]
        except self._refusals as error:
            return Contender(str(configuration), _nothing, _nothing, trouble=str(error))

        def enqueue(stream: Any, places: Sequence[int]) -> None:
            for place in places:
                self._put(steps[place], stream)

        made = self.timed(str(configuration), enqueue, sets, capturable=not any(map(has_host_stage, steps)))
        made.configuration = configuration
        return made

    def check(self, space: Space, contender: Contender, sets: AnySets) -> None:
        """Look at the answers of a configuration."""
        if contender.trouble or contender.configuration is None:
            return
        plan = space.plans[contender.configuration]
        sets = sets.of(plan)
        steps = self.code.launches(plan, sets.arrays[0])

        def run() -> None:
            self._put(steps, self.cp.cuda.get_current_stream())

        contender.deviation = self._checked(run, sets)

    def rounds(self, contenders: Sequence[Contender], seed: int) -> None:
        """Times of all by turns, cold, in an order drawn anew in every round."""
        if not contenders:
            return
        fewest, most = ROUNDS
        one_ms = sum(contender.quick_ms + 0.5 for contender in contenders)
        count = 2 * (int(min(most, max(fewest, ROUNDS_MS / one_ms))) // 2)
        by_name = {contender.name: contender for contender in contenders}
        times = self.timer.interleaved(
            {name: contender.run for name, contender in by_name.items()},
            count,
            {name: contender.prepare for name, contender in by_name.items()},
            seed=seed,
        )
        for name, contender in by_name.items():
            contender.times_ms = times[name]

    def _checked(
        self, run: Callable[[], None], sets: AnySets, converted: Callable[..., Any] | None = None
    ) -> Deviation:
        sets.begin_check()
        run()
        self.cp.cuda.runtime.deviceSynchronize()
        made = sets.made()
        return sets.judge(made if converted is None else converted(sets.given(), made))

    def timed(
        self,
        name: str,
        enqueue: Callable[[Any, Sequence[int]], None],
        sets: AnySets,
        restore: Callable[[], None] | None = None,
        *,
        capturable: bool = True,
    ) -> Contender:
        """Work on sets, given by their numbers, timed a few times: as a graph where it can be one."""
        restore = restore or sets.restore
        everything = range(sets.count)
        current = self.cp.cuda.get_current_stream
        try:
            restore()
            enqueue(current(), [0])  # loads what is loaded when first used
            self.cp.cuda.runtime.deviceSynchronize()
            graph = self.graph(lambda stream: enqueue(stream, everything)) if capturable else None
            if graph is None:

                def run() -> None:
                    enqueue(current(), everything)

                made = Contender(name, run, lambda: self._led(restore, sets.count), graph=False)
            else:
                made = Contender(name, lambda: graph.launch(current()), restore)
            made.quick_ms = self._quick_ms(made)
        except self._refusals as error:
            return Contender(name, _nothing, _nothing, trouble=str(error))
        return made

    def _quick_ms(self, made: Contender) -> float:
        """Median of a few times; of a run that takes long, of fewer."""
        times: list[float] = []
        while len(times) < QUICK and sum(times) < QUICK_MS:
            times.append(self.timer.once(made.run, made.prepare))
        return median(times)

    def _put(self, steps: Sequence[Step], stream: Any) -> None:
        """Steps of a run, some of which may run beside the others."""
        if any(isinstance(step, StageLaunch) and step.side for step in steps):
            self._sides.enqueue(steps, stream)
        else:
            for step in steps:
                step.enqueue(stream)

    def _led(self, restore: Callable[[], None], count: int) -> None:
        """Restores, and keeps the GPU busy while the host makes its calls, one for each set."""
        restore()
        for _ in range(1 + int(count * _CALL_S / _LEAD_S)):
            self._lead.fill(0)

    def graph(self, enqueue: Callable[[Any], None]) -> Any:
        """What was put into a stream as a graph; None where that cannot be captured."""
        stream = self._captured
        stream.begin_capture()
        try:
            enqueue(stream)
            graph = stream.end_capture()
            if self._sides.used:
                graph = PrioritisedGraph(graph, self._driver)
        except (RuntimeError, self.cp.cuda.runtime.CUDARuntimeError):
            with suppress(RuntimeError, self.cp.cuda.runtime.CUDARuntimeError):
                stream.end_capture()  # what cannot be captured spoils the capture
            self._open_streams()
            return None
        graph.upload(self.cp.cuda.get_current_stream())
        return graph

    def _open_streams(self) -> None:
        """New ones after a capture that broke; else they are kept, and with them the workspaces of cuBLAS."""
        self._captured = new_stream(self.cp, MAIN)
        self._sides = SideStreams(self.cp)


def _nothing() -> None:
    """Runs nothing."""


@dataclass
class Field:
    """Who takes part in a row.

    Attributes:
        peers: the forms of the library, each looked at.
        own: every configuration that was measured.
        finalists: of these; each looked at.
    """

    peers: list[Contender]
    own: list[Contender]
    finalists: list[Contender]

    @property
    def right_peers(self) -> list[Contender]:
        """The fastest forms of the library that answer right."""
        return sorted((one for one in self.peers if one.right), key=_quick_ms)[:PEER_FINALISTS]

    @property
    def right_own(self) -> list[Contender]:
        """Finalists that answer right."""
        return [one for one in self.finalists if one.right]


def field_of(
    machine: Machine,
    space: Space,
    first: Sequence[Configuration],
    sets: AnySets,
    *,
    forms: Sequence[Form],
    ends_s: float,
) -> Field:
    """Time everything a few times, search the kernel until ``ends_s``, look at answers."""
    peers = [machine.library(form, sets) for form in forms]
    own = searched(machine, space, first, sets, ends_s)
    named = [c for c in (space.item.default, space.analytical) if c is not None]
    best = sorted((one for one in own if isfinite(one.quick_ms)), key=_quick_ms)
    chosen = [*[one for one in best if one.configuration in named], *best[:OWN_FINALISTS]]
    finalists = list({one.name: one for one in chosen}.values())
    for one in finalists:
        machine.check(space, one, sets)
    return Field(peers, own, finalists)


def _quick_ms(contender: Contender) -> float:
    return contender.quick_ms


def contest(
    machine: Machine, space: Space, first: Sequence[Configuration], budget_s: float, copy_gb_s: float
) -> dict[str, Any]:
    """The figures of one row."""
    begun_s = time.monotonic()
    plan = space.plans[space.item.default]
    sets = Sets(machine.cp, plan)
    forms = machine.libraries.forms(space.case, sets)
    field = field_of(machine, space, first, sets, forms=forms, ends_s=begun_s + budget_s)
    machine.rounds([*field.right_own, *field.right_peers], seed=space.case.n)
    row = row_of(space, field, sets)
    row |= {"batch": sets.batch, "sets": sets.count, "bytes": plan.work.bytes}
    row |= compared(space, field.finalists, field.right_peers, sets.count, copy_gb_s)
    return {**row, "seconds": round(time.monotonic() - begun_s, 2)}


def row_of(space: Space, field: Field, sets: AnySets) -> dict[str, Any]:
    """What a row says apart from its figures."""
    return {
        "operation": space.case.operation,
        "n": space.case.n,
        "dtype": space.case.dtype,
        "target": space.case.target,
        "configurations": {"measured": len(field.own), "candidates": len(space.item.candidates)},
        "peers_tried": [shown(one, sets.count) for one in field.peers],
        "wrong": [shown(one, sets.count) for one in field.finalists if not one.right],
        "no_analytical": space.why,
    }


def searched(
    machine: Machine, space: Space, first: Sequence[Configuration], sets: AnySets, ends_s: float
) -> list[Contender]:
    """Configurations, measured a few times each; default and analytical choice whatever time is left."""
    own: list[Contender] = []
    rng = random.Random(space.case.n)  # noqa: S311 - an order
    named = {space.item.default, space.analytical}
    batch = sorted(first, key=lambda one: one not in named)
    while batch:
        own += [
            machine.kernel(space, configuration, sets)
            for configuration in batch
            if configuration in named or time.monotonic() < ends_s
        ]
        if time.monotonic() >= ends_s:
            break
        best = sorted(own, key=lambda one: one.quick_ms)[:2]
        batch = machine.searcher.more(
            space, [one.configuration for one in best if one.configuration is not None], rng
        )
    return own
