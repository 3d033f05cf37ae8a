"""One row of benchmarks/linalg_peers.py: library and kernel side by side on the same arrays."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import inf, isfinite
from typing import Any

from cold_timing import Timer, median, outside_interval, spread
from linalg_libraries import Form, LinalgLibraries
from linalg_search import Searcher, Space, as_json
from linalg_sets import Sets

from tuner.devices.cuda.code import CodeCache
from tuner.errors import TunerError
from tuner.model import Configuration
from tuner.problems import Deviation

QUICK = 3  # repeats before the rounds
ROUNDS = (12, 24)  # fewest and most; the first half chooses, the second is reported
ROUNDS_MS = 1500.0  # of a row, where the fewest allow it
OWN_FINALISTS, PEER_FINALISTS = 3, 2
_LEAD_BYTES = 2**30  # set to zero before calls that are no graph, so that the GPU does not wait for the host
_CALL_S, _LEAD_S = 15e-6, 2.5e-4  # of a call on the host, at most; of the lead on the GPU, at least


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
        self.timer = Timer(cp)
        self._lead = cp.empty(_LEAD_BYTES, "uint8")
        self._refusals = (
            *(TunerError, RuntimeError, MemoryError),
            *(cp.cuda.driver.CUDADriverError, cp.cuda.runtime.CUDARuntimeError),
        )

    def library(self, form: Form, sets: Sets) -> Contender:
        """A library's form, checked and timed a few times."""

        def enqueue(stream: Any, places: Sequence[int]) -> None:
            for place in places:
                form.call(place, stream.ptr)

        made = self._made(form.key, enqueue, sets)
        made.form = form
        if not made.trouble:
            made.deviation = self._checked(
                lambda: enqueue(self.cp.cuda.get_current_stream(), [0]), sets, form.converted
            )
        return made

    def kernel(self, space: Space, configuration: Configuration, sets: Sets) -> Contender:
        """A configuration of the kernel, timed a few times."""
        try:
            program = self.code.program(space.plans[configuration])
            steps = [program.bound(arrays) for arrays in sets.arrays]
        except self._refusals as error:
            return Contender(str(configuration), _nothing, _nothing, trouble=str(error))

        def enqueue(stream: Any, places: Sequence[int]) -> None:
            for place in places:
                for step in steps[place]:
                    step.enqueue(stream)

        made = self._made(str(configuration), enqueue, sets)
        made.configuration = configuration
        return made

    def check(self, space: Space, contender: Contender, sets: Sets) -> None:
        """Look at the answers of a configuration."""
        if contender.trouble or contender.configuration is None:
            return
        steps = self.code.launches(space.plans[contender.configuration], sets.arrays[0])

        def run() -> None:
            for step in steps:
                step.enqueue(self.cp.cuda.get_current_stream())

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
        self, run: Callable[[], None], sets: Sets, converted: Callable[..., Any] | None = None
    ) -> Deviation:
        sets.begin_check()
        run()
        self.cp.cuda.runtime.deviceSynchronize()
        made = sets.made()
        return sets.judge(made if converted is None else converted(sets.given(), made))

    def _made(self, name: str, enqueue: Callable[[Any, Sequence[int]], None], sets: Sets) -> Contender:
        everything = range(sets.count)
        current = self.cp.cuda.get_current_stream
        try:
            sets.restore()
            enqueue(current(), [0])  # loads what is loaded when first used
            self.cp.cuda.runtime.deviceSynchronize()
            graph = self._graph(lambda stream: enqueue(stream, everything))
            if graph is None:

                def run() -> None:
                    enqueue(current(), everything)

                made = Contender(name, run, lambda: self._led(sets), graph=False)
            else:
                made = Contender(name, lambda: graph.launch(current()), sets.restore)
            made.quick_ms = median([self.timer.once(made.run, made.prepare) for _ in range(QUICK)])
        except self._refusals as error:
            return Contender(name, _nothing, _nothing, trouble=str(error))
        return made

    def _led(self, sets: Sets) -> None:
        """Restores the sets, and keeps the GPU busy while the host makes its calls."""
        sets.restore()
        for _ in range(1 + int(sets.count * _CALL_S / _LEAD_S)):
            self._lead.fill(0)

    def _graph(self, enqueue: Callable[[Any], None]) -> Any:
        """What was put into a stream as a graph; None where that cannot be captured."""
        stream = self.cp.cuda.Stream(non_blocking=True)
        stream.begin_capture()
        try:
            enqueue(stream)
            graph = stream.end_capture()
        except (RuntimeError, self.cp.cuda.runtime.CUDARuntimeError):
            with suppress(RuntimeError, self.cp.cuda.runtime.CUDARuntimeError):
                stream.end_capture()  # what cannot be captured spoils the capture, and no more
            return None
        graph.upload(self.cp.cuda.get_current_stream())
        return graph


def _nothing() -> None:
    """Runs nothing."""


def contest(
    machine: Machine, space: Space, first: Sequence[Configuration], budget_s: float, copy_gb_s: float
) -> dict[str, Any]:
    """The row of a case.

    Args:
        machine: where.
        space: of the kernel.
        first: configurations that are compiled.
        budget_s: for measuring configurations, and for compiling more of them.
        copy_gb_s: bytes read and written by a copy.
    """
    begun_s = time.monotonic()
    plan = space.plans[space.item.default]
    sets = Sets(machine.cp, plan)
    peers = [machine.library(form, sets) for form in machine.libraries.forms(space.case, sets)]
    own = _searched(machine, space, first, sets, begun_s + budget_s)
    named = [c for c in (space.item.default, space.analytical) if c is not None]
    best = sorted((one for one in own if isfinite(one.quick_ms)), key=lambda one: one.quick_ms)
    chosen = [*[one for one in best if one.configuration in named], *best[:OWN_FINALISTS]]
    finalists = list({one.name: one for one in chosen}.values())
    for one in finalists:
        machine.check(space, one, sets)
    right_peers = sorted((one for one in peers if one.right), key=lambda one: one.quick_ms)[:PEER_FINALISTS]
    machine.rounds([*(one for one in finalists if one.right), *right_peers], seed=space.case.n)
    row = {
        "operation": space.case.operation,
        "n": space.case.n,
        "dtype": space.case.dtype,
        "batch": sets.batch,
        "sets": sets.count,
        "target": str(space.case.target),
        "least": space.case.target.least,
        "aim": space.case.target.aim,
        "configurations": {"measured": len(own), "candidates": len(space.item.candidates)},
        "bytes": plan.work.bytes,
        "peers_tried": [_shown(one, sets.count) for one in peers],
        "wrong": [_shown(one, sets.count) for one in finalists if not one.right],
        "no_analytical": space.why,
    }
    row |= _compared(space, finalists, right_peers, sets.count, copy_gb_s)
    return {**row, "seconds": round(time.monotonic() - begun_s, 2)}


def _searched(
    machine: Machine, space: Space, first: Sequence[Configuration], sets: Sets, ends_s: float
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


def _shown(contender: Contender, sets: int) -> dict[str, Any]:
    """A contender that was tried."""
    row: dict[str, Any] = {"name": contender.name}
    if contender.trouble:
        return {**row, "trouble": contender.trouble}
    row |= {"us": 1e3 * contender.quick_ms / sets, "graph": contender.graph}
    if contender.deviation is not None:
        row |= {"error": contender.deviation.error, "what": contender.deviation.what}
        row |= {"allowed": contender.deviation.allowed, "correct": contender.right}
    return row


def _compared(
    space: Space, own: Sequence[Contender], peers: Sequence[Contender], sets: int, copy_gb_s: float
) -> dict[str, Any]:
    """Own figures, those of the best peer, and ratios."""
    right = {one.configuration: one for one in own if one.right}
    peer = _fastest(peers)
    row: dict[str, Any] = {"peer": None if peer is None else _timed(peer, sets)}
    forms = {
        "default": right.get(space.item.default),
        "analytical": right.get(space.analytical),
        "best": _fastest(list(right.values())),
    }
    for name, one in forms.items():
        if one is None:
            row[name] = None
            continue
        row[name] = {**_timed(one, sets), "configuration": as_json(one.configuration)}
        moved = space.plans[one.configuration].work.bytes if one.configuration is not None else 0.0
        row[name]["roofline"] = moved / (1e3 * row[name]["us"] * copy_gb_s)
        if peer is not None:
            row[name]["ratio"] = _ratio(peer, one)
    best = row["best"]
    row["correct"] = best is not None
    ratio = None if best is None or peer is None else best["ratio"]["median"]
    row["met"] = None if ratio is None else space.case.target.met(ratio)
    return row


def _fastest(contenders: Sequence[Contender]) -> Contender | None:
    """By the first half of the rounds, of which nothing else is reported."""
    timed = [one for one in contenders if one.times_ms]
    return min(timed, key=lambda one: median(list(one.half_ms(second=False))), default=None)


def _timed(contender: Contender, sets: int) -> dict[str, Any]:
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
