"""One row of linalg_peers.py: library and kernel side by side on the same arrays."""

import random
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from math import isfinite
from typing import Any

from cold_timing import Timer, median
from linalg_forms import Form
from linalg_libraries import LinalgLibraries
from linalg_rows import Contender, compared, shown
from linalg_search import Searcher, Space
from linalg_sets import AnySets, Sets

from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.launches import StageLaunch, Step, has_host_stage
from tuner.devices.cuda.rounds import SideStreams
from tuner.model.errors import TunerError
from tuner.model.plan import Configuration
from tuner.problems.base import Deviation

QUICK = 3  # repeats before the rounds
QUICK_MS = 1000.0  # of these, after which no other begins
ROUNDS = (12, 24)  # fewest and most; the first half chooses, the second is reported
ROUNDS_MS = 1500.0  # of a row, where the fewest allow it
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
        self.timer = Timer(cp)
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
            if form.restore is not None:
                form.restore()
            enqueue(self.cp.cuda.get_current_stream(), [0])

        made = self.timed(form.key, enqueue, sets, more=form.restore)
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
        *,
        more: Callable[[], None] | None = None,
        capturable: bool = True,
    ) -> Contender:
        """Work on sets, given by their numbers, timed a few times: as a graph where it can be one.

        ``more`` restores what does not belong to the sets.
        """
        everything = range(sets.count)

        def restore() -> None:
            sets.restore()
            if more is not None:
                more()

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
            made.enqueue = lambda stream: enqueue(stream, everything)
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
        except (RuntimeError, self.cp.cuda.runtime.CUDARuntimeError):
            with suppress(RuntimeError, self.cp.cuda.runtime.CUDARuntimeError):
                stream.end_capture()  # what cannot be captured spoils the capture
            self._open_streams()
            return None
        graph.upload(self.cp.cuda.get_current_stream())
        return graph

    def _open_streams(self) -> None:
        """New ones after a capture that broke; else they are kept, and with them the workspaces of cuBLAS."""
        self._captured = self.cp.cuda.Stream(non_blocking=True)
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
        """The fastest forms of the library that answer right, with some of the kernel's layout among them."""
        right = sorted((one for one in self.peers if one.right), key=_quick_ms)
        alike = [one for one in right if one.form is not None and not one.form.turned]
        chosen = [*right[:PEER_FINALISTS], *alike[:PEER_FINALISTS]]
        return list({one.name: one for one in chosen}.values())

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
        "target": str(space.case.target),
        "least": space.case.target.least,
        "aim": space.case.target.aim,
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
