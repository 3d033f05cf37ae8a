"""``tuner.judge``: a candidate against a reference, neither of which can reach what judges them.

Each has a process of its own; inputs, right answers and the clock are here. A candidate that patches timers,
reads frames or keeps answers for later finds nothing there that would help it.
"""

import inspect
import math
import os
import secrets
import tempfile
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from tuner.kernel_files.input_reader import file_sha256
from tuner.measurement.judged import INSIDE, Values, code_digests
from tuner.measurement.paired import LEAST_REPEATS, MOST_REPEATS, PairedRepeats, Ratio
from tuner.model.errors import (
    ChildCrashedError,
    ChildError,
    ChildTimeoutError,
    DeviceError,
    InputError,
    TunerError,
    UncheckableError,
)
from tuner.model.objective import Objective
from tuner.model.plan import Configuration, PythonFunction
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.model.units import WIDEST, lasting, percent_with_interval, si
from tuner.problems.base import Deviation, agreement, unit_roundoff, worst_of
from tuner.system.processes import Child

if TYPE_CHECKING:
    from tuner.joules.energy_meter import EnergyMeter

Function = Callable[..., Any] | str
"""A function at the top of a file, or ``file.py:function``."""

Verdict = Literal["right", "wrong", "cheats"]

_SERVER = "tuner.measurement.judged:JudgedFunction"
_CANDIDATE, _REFERENCE = (Trial((Configuration({"judged": name}),)) for name in ("candidate", "reference"))
_TIME, _ENERGY = Objective("time"), Objective("energy")
_CHECKS = 3  # of each size
_START_S = 180.0  # a context on a GPU, and what the user's file imports
_PRECISION = 0.01  # of ratios: more turns are taken until it is reached
_GPU_BYTES, _HOST_BYTES = 2**28, 2**26  # of inputs in a turn, of which a half is called once
_MOST_SETS, _LEAST_SETS = 256, 4
_MOST_CALLS, _PATIENCE = 10**7, 4.0  # so many times what they should take are waited for
_LONGEST_S = 1e5
_CACHED, _CACHED_S = 2.0, 2e-3  # times, and seconds of a half, that fresh inputs may take longer
_WARM = 1.3  # times that are told


@dataclass(frozen=True)
class Judgement:
    """The judgement of a candidate.

    Attributes:
        verdict: ``right``, ``wrong``, or ``cheats``: it does what no honest candidate does.
        reason: why it is not right; empty where it is.
        checks: calls whose outputs were compared.
        sizes: that were checked; the first was measured.
        error: the largest relative error of an output.
        allowed: the largest that may be.
        candidate_s: time of a call; None where nothing was measured.
        reference_s: likewise.
        time: the one by the other, in turns, with its interval of 95 %.
        candidate_j: joules of a call; None where none were measured.
        reference_j: likewise.
        energy: as ``time``.
        notes: what a reader must know.
    """

    verdict: Verdict
    reason: str = ""
    checks: int = 0
    sizes: tuple[object, ...] = ()
    error: float | None = None
    allowed: float | None = None
    candidate_s: float | None = None
    reference_s: float | None = None
    time: Ratio | None = None
    candidate_j: float | None = None
    reference_j: float | None = None
    energy: Ratio | None = None
    notes: tuple[str, ...] = ()

    def __str__(self) -> str:
        checked = f"{self.checks} check{'' if self.checks == 1 else 's'}"
        lines = [f"{self.verdict}{self.reason and ': '}{self.reason} ({checked})"]
        for word, unit, one, other, ratio in (
            ("time", "s", self.candidate_s, self.reference_s, self.time),
            ("energy", "J", self.candidate_j, self.reference_j, self.energy),
        ):
            if ratio is not None:
                change = percent_with_interval(ratio.value - 1.0, ratio.interval)
                lines.append(f"{word} of a call: {si(one, unit)}, reference {si(other, unit)}: {change}")
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


class _VerdictError(Exception):
    """A verdict that ends a judgement early, with its reason."""

    def __init__(self, verdict: Verdict, reason: str) -> None:
        super().__init__(reason)
        self.verdict = verdict


def judge(
    candidate: Function,
    reference: Function,
    *,
    inputs: Function,
    sizes: Sequence[object] | None = None,
    writes: Sequence[int] | None = None,
    tolerance: float | None = None,
    seconds: float = 10.0,
    timeout_s: float = 60.0,
) -> Judgement:
    """Judge whether a candidate is right and honest, how fast it is, and how many joules it takes.

    Candidate and reference are called in processes of their own, with the same fresh inputs, in turns. A
    judgement is no sandbox.

    Args:
        candidate: a function of arrays at the top of a file, or ``"file.py:function"``, that returns outputs.
        reference: likewise; what it returns is right.
        inputs: ``inputs(rng)``, or ``inputs(rng, size)`` where there are sizes: the arguments of a call, with
            arrays of NumPy, CuPy or PyTorch. ``rng`` is a generator of NumPy; random numbers of the libraries
            are seeded, too.
        sizes: what ``inputs`` is called with; the first is measured.
        writes: positions of arguments that may be written; they are the outputs of a call that returns None.
        tolerance: largest relative error of an output; if not given, half of its digits, 0 for whole numbers.
        seconds: for which turns are taken, three of each at the least; fewer where ratios are known to 1 %.
        timeout_s: longest wait for a call.

    ``sizes``, ``writes`` and ``tolerance`` that are not given are those that the file of ``inputs`` defines.

    Raises:
        InputError: an argument, the reference or the inputs cannot be used.
        DeviceError: the candidate's process cannot take the inputs.
    """
    if inside := os.environ.get(INSIDE):
        raise InputError(
            f"tuner.judge: is called while {inside} is loaded; put the call below"
            " `if __name__ == '__main__':`"
        )
    lengths: dict[str, object] = {"seconds": seconds, "timeout_s": timeout_s}
    for name, value in lengths.items():
        if not isinstance(value, int | float) or not 0 < value <= _LONGEST_S:
            raise InputError(f"{name}={value!r}: write seconds above 0, {_LONGEST_S:g} at most")
    given, right, made = (
        _located(role, function)
        for role, function in (("candidate", candidate), ("reference", reference), ("inputs", inputs))
    )
    with Child(_SERVER, right, made, name="the reference", whole=True) as child:
        court = _Court(child, right, seconds, timeout_s)
        stated = {"sizes": sizes, "writes": writes, "tolerance": tolerance}
        court.settle({**court.right("settings"), **{k: v for k, v in stated.items() if v is not None}})
        with tempfile.TemporaryDirectory(prefix="tuner-judge-", ignore_cleanup_errors=True) as folder:
            return court.judge(given, folder)


class _Turn(NamedTuple):
    """One side in a turn; the seconds are of a call, by the clock of its process."""

    measured: Measurement
    again_s: float
    fresh_s: float

    @property
    def factor(self) -> float:
        """Time with fresh inputs by that with known ones."""
        return self.fresh_s / max(self.again_s, 1e-9)


class _Court:
    """A judgement that goes on.

    Args:
        child: the process of reference and inputs.
        reference: the function.
        seconds: for which both are measured.
        timeout_s: longest wait for a call.
    """

    def __init__(self, child: Child, reference: PythonFunction, seconds: float, timeout_s: float) -> None:
        self._children = {_REFERENCE: child}
        self._reference = reference
        self._seconds = seconds
        self._turn_s = seconds / (2 * MOST_REPEATS)
        self._timeout_s = timeout_s
        self._shared = False
        self._sizes: tuple[object, ...] = ()
        self._writes: tuple[int, ...] = ()
        self._tolerance: float | None = None
        self._deviations: list[Deviation] = []
        self._notes: list[str] = []
        self._checks = 0
        self._call_s: dict[Trial, float] = {}
        self._last: list[int] = []
        self._at = ""

    def right(self, method: str, *args: object, more_s: float = _START_S) -> Any:  # noqa: ANN401 - its answer
        """Ask the process of reference and inputs; what goes wrong there is no candidate's fault."""
        try:
            return self._children[_REFERENCE].call(method, *args, timeout_s=self._timeout_s + more_s)
        except ChildError as error:
            self._look_for_stops()
            raise InputError(f"reference {self._reference}: {_last_line(error)}") from error

    def _candidate(self, method: str, *args: object, more_s: float = 0.0) -> Any:  # noqa: ANN401 - same
        timeout_s = self._timeout_s + more_s
        try:
            return self._children[_CANDIDATE].call(method, *args, timeout_s=timeout_s)
        except UncheckableError as error:
            self._look_for_events()
            raise _VerdictError("wrong", str(error)) from error
        except ChildTimeoutError as error:
            raise _VerdictError("wrong", f"it has not ended within {lasting(timeout_s)}") from error
        except ChildCrashedError as error:
            if method == "load":  # before it was called: no memory, or no GPU any more
                raise DeviceError(f"the candidate's process: {_last_line(error)}") from error
            raise _VerdictError("wrong", _last_line(error)) from error

    def settle(self, settings: dict[str, Any]) -> None:
        """Take over sizes, writes and tolerance.

        Raises:
            InputError: they are none.
        """
        sizes, writes, tolerance = (settings[name] for name in ("sizes", "writes", "tolerance"))
        if sizes is not None and (not isinstance(sizes, list | tuple) or not sizes):
            raise InputError(f"sizes = {sizes!r}: write a list of what inputs(rng, size) takes, as [512, 99]")
        good = isinstance(writes, list | tuple) and all(type(one) is int and one >= 0 for one in writes)
        if writes is not None and not good:
            raise InputError(f"writes = {writes!r}: write positions of arguments, as (0,) for the first")
        if tolerance is not None and not (isinstance(tolerance, int | float) and 0 <= tolerance < 1):
            raise InputError(f"tolerance = {tolerance!r}: write a relative error from 0 to below 1, as 1e-4")
        self._sizes, self._writes, self._tolerance = tuple(sizes or ()), tuple(writes or ()), tolerance
        if len(self._sizes) <= 1:
            self._notes.append("one size was checked: sizes = [...] names others")

    def judge(self, candidate: PythonFunction, folder: str) -> Judgement:
        """Check, then measure; ``folder`` is where the candidate's process may leave files."""
        sizes: list[tuple[object, ...]] = [(size,) for size in self._sizes] or [()]
        library, _ = self._loaded(sizes[0], 1)
        self._shared = candidate.path == self._reference.path
        itself = self._shared and candidate.name == self._reference.name
        guarded = None if itself else (self._reference, _digest(self._reference))
        server = (_SERVER, candidate, None, library, guarded, folder)
        try:
            with Child(*server, name="the candidate", whole=True) as child:
                self._children[_CANDIDATE] = child
                try:
                    child.ready(_START_S)
                except ChildError as error:
                    raise _VerdictError("wrong", _last_line(error)) from error
                self._check(sizes)
                paired = self._measured(sizes[0], _meter(library, self._notes))
        except _VerdictError as found:
            return self._judgement(found.verdict, f"{found}{self._at}")
        one, other = (paired.joined()[side] for side in (_CANDIDATE, _REFERENCE))
        return replace(
            self._judgement("right"),
            candidate_s=one.makespan_s,
            reference_s=other.makespan_s,
            time=paired.ratio(_CANDIDATE, _REFERENCE, _TIME),
            candidate_j=None if one.energy is None else one.energy.joules,
            reference_j=None if other.energy is None else other.energy.joules,
            energy=paired.ratio(_CANDIDATE, _REFERENCE, _ENERGY),
        )

    def _judgement(self, verdict: Verdict, reason: str = "") -> Judgement:
        worst = worst_of(self._deviations) if self._deviations else None
        error, allowed = (None, None) if worst is None else (min(worst.error, WIDEST), worst.allowed)
        notes = tuple(dict.fromkeys(self._notes))
        return Judgement(verdict, reason, self._checks, self._sizes, error, allowed, notes=notes)

    # --- Right answers.

    def _loaded(self, size: tuple[object, ...], count: int) -> tuple[str, list[list[Any]]]:
        """Have both take arguments of so many calls, with numbers that nobody has seen before.

        Returns:
            The library of their arrays, and the arguments.
        """
        library, sets = self.right("make", secrets.randbits(63), count, size, self._writes)
        if _CANDIDATE in self._children:
            self._at = f", at size {size[0]}" if size else ""
            self._candidate("load", sets, self._writes)
        return library, sets

    def _check(self, sizes: Sequence[tuple[object, ...]]) -> None:
        """Compare some calls of each size; sizes take turns, so that none finds its own memory."""
        answers: list[list[Values]] = []
        for _ in range(_CHECKS):
            for size in sizes:
                _, sets = self._loaded(size, 1)
                self._candidate("call", 0)
                self._last = [0]
                answers += self._verify(sets, answers)
        if all(
            _agree(one, other, self._tolerance)
            for one, other in zip(answers, answers[len(sizes) :], strict=False)
        ):
            raise InputError(
                f"reference {self._reference}: gives the same answer to {_CHECKS} different inputs, which a"
                " constant would, too: have inputs(rng) draw numbers that matter"
            )

    def _verify(self, sets: list[list[Any]], earlier: Sequence[list[Values]] = ()) -> list[list[Values]]:
        """Compare the last call of each run of the candidate: what was timed is right, too.

        Returns:
            The right answers.
        """
        kept = self._candidate("kept")
        self._look_for_events()
        if len(kept) != len(self._last):
            raise _VerdictError("cheats", f"it hides {len(self._last) - len(kept)} of its answers")
        answers = []
        self.right("kept")
        for index, (got, after) in zip(self._last, kept, strict=True):
            self.right("call", index)
            ((right, _),) = self.right("kept")
            self._checks += 1
            for position, (one, other) in enumerate(zip(sets[index], after, strict=True)):
                if isinstance(one, Values) and position not in self._writes and not _is_same(one, other):
                    raise _VerdictError("wrong", f"it changes argument {position}, which is not among writes")
            try:
                self._compare(right, got)
            except _VerdictError as found:
                if any(_agree(old, got, self._tolerance) for old in earlier):
                    raise _VerdictError("cheats", "it gives the answer to earlier inputs") from found
                raise
            answers.append(right)
        self._last = []
        return answers

    def _look_for_stops(self) -> None:
        """The reference's process is in a session of its own: no key of a terminal stops it."""
        if self._children[_REFERENCE].was_stopped():
            raise _VerdictError("cheats", "it stops the reference's process")

    def _look_for_events(self) -> None:
        self._look_for_stops()
        events = self._candidate("events")
        if self._shared:  # what the file replaces when it is imported, it does there, too
            events += self.right("events")
        if events:
            raise _VerdictError("cheats", "it " + ", ".join(dict.fromkeys(events)))

    def _compare(self, right: Sequence[Values], got: Sequence[Values]) -> None:
        """Hold outputs against the right ones."""
        if [one.form for one in right] != [one.form for one in got]:
            raise _VerdictError("wrong", f"it returns {_forms(got)}, and the reference {_forms(right)}")
        for number, (one, other) in enumerate(zip(right, got, strict=True)):
            deviation = _deviation(one, other, self._tolerance, f"output {number}")
            self._deviations.append(deviation)
            if not deviation.ok:
                error, allowed = f"{deviation.error:.1e}", f"{deviation.allowed:.1e}"
                raise _VerdictError("wrong", f"{deviation.what} is {error}, and {allowed} is allowed")

    # --- Times and joules, by the clock of this process.

    def _measured(self, size: tuple[object, ...], meter: "EnergyMeter | None") -> PairedRepeats:
        """Turns of both.

        Raises:
            _VerdictError: an answer was wrong, or was kept from an earlier call.
        """
        _, sets = self._loaded(size, 1)
        set_bytes = sum(value.array.nbytes for value in sets[0] if isinstance(value, Values))
        self._call_s = {side: self._run(side, 0, 1, 1)[0] for side in (_CANDIDATE, _REFERENCE)}
        self._verify(sets)
        most_bytes = _HOST_BYTES if meter is None else _GPU_BYTES
        room = min(most_bytes // max(1, set_bytes), int(2 * self._turn_s / max(self._call_s.values())))
        half = max(_LEAST_SETS, min(_MOST_SETS, room)) // 2
        turns: list[dict[Trial, _Turn]] = []
        begun = time.monotonic()
        while True:
            _, sets = self._loaded(size, 2 * half)
            order = (_CANDIDATE, _REFERENCE) if len(turns) % 2 else (_REFERENCE, _CANDIDATE)
            turns.append({side: self._turn(side, half, meter) for side in order})
            self._verify(sets)
            paired = PairedRepeats(
                tuple({side: one.measured for side, one in turn.items()} for turn in turns)
            )
            ratios = [paired.ratio(_CANDIDATE, _REFERENCE, objective) for objective in (_TIME, _ENERGY)]
            known = all(ratio is None or ratio.turns_interval <= _PRECISION for ratio in ratios)
            if len(turns) >= LEAST_REPEATS and (known or time.monotonic() - begun > self._seconds):
                break
            if len(turns) == MOST_REPEATS:
                break
        theirs = max(1.0, min(turn[_REFERENCE].factor for turn in turns))
        least = min((turn[_CANDIDATE] for turn in turns), key=lambda turn: turn.factor)
        if least.factor > _WARM * theirs and (least.fresh_s - least.again_s) * half > _CACHED_S:
            took = f"takes {si(least.again_s, 's')}, one with fresh ones {si(least.fresh_s, 's')}"
            if least.factor > _CACHED * theirs:
                kept = "it keeps answers between calls: one with inputs that it has seen"
                raise _VerdictError("cheats", f"{kept} {took}")
            self._notes.append(f"it may keep answers: a call with inputs that it has seen {took}")
        return paired

    def _run(self, side: Trial, first: int, stop: int, count: int) -> tuple[float, float]:
        """Seconds of so many calls by the clock of this process, and by the other's own."""
        more_s = _PATIENCE * count * self._call_s.get(side, 0.0)
        if side == _CANDIDATE:
            self._last.append(first + (count - 1) % (stop - first))
        ask = self._candidate if side == _CANDIDATE else self.right
        begun = time.monotonic()
        own_s = ask("run", first, stop, count, more_s=more_s)
        return time.monotonic() - begun, own_s

    def _turn(self, side: Trial, half: int, meter: "EnergyMeter | None") -> "_Turn":
        """One turn of one side: inputs that it has seen, again and again; then those that it has not."""
        took_s, _ = self._run(side, 0, half, half)
        call_s = min(self._call_s[side], took_s / half)
        count = min(_MOST_CALLS, max(half, int(self._turn_s / call_s)))
        count += secrets.randbelow(half)  # nobody knows which call will be the last
        with nullcontext() if meter is None else meter as region:
            took_s, own_s = self._run(side, 0, half, count)
        self._call_s[side] = took_s / count
        (self._candidate if side == _CANDIDATE else self.right)("touch", half, 2 * half)
        _, fresh_s = self._run(side, half, 2 * half, half)
        energy = None
        if region is not None:
            try:
                found = region.result()
            except TunerError as error:
                self._notes.append(f"no joules of a turn: {error}")
            else:
                (part, *_) = found.parts
                uncertainty_j = found.uncertainty_j / count
                energy = Energy(found.joules / count, uncertainty_j, found.mean_w, part.sensor, part.scope)
        result = WorkloadResult(Status.OK, took_s / count)
        measured = Measurement((result,), took_s / count, energy=energy, rounds=count, window_s=took_s)
        return _Turn(measured, own_s / count, fresh_s / half)


def _meter(library: str, notes: list[str]) -> "EnergyMeter | None":
    """Joules of the GPU, where the arrays lie on one."""
    if library not in ("cupy", "torch cuda"):
        notes.append("the arrays are on the host: times are those of its clock, and no joules are measured")
        return None
    from tuner.joules.energy_meter import energy  # noqa: PLC0415 - takes a second, for a GPU only

    try:
        return energy(synchronize=False)  # each run waits for the whole GPU
    except TunerError as error:
        notes.append(f"no joules: {error}")
        return None


def _located(role: str, function: Function) -> PythonFunction:
    """A function by its file, for the processes that load it."""
    if isinstance(function, str):
        file, _, name = function.rpartition(":")
        if not file or not name.isidentifier():
            raise InputError(f"{role} = {function!r}: write file.py:function")
    elif callable(function):
        try:
            file = inspect.getsourcefile(function) or ""
        except TypeError:
            file = ""
        name = getattr(function, "__qualname__", "")
        if not name.isidentifier() or not Path(file).is_file():
            raise InputError(
                f"{role} = {name or function!r}: is called in another process: give a function at the top"
                " of a Python file"
            )
    else:
        raise InputError(f"{role} = {function!r}: give a function, or file.py:function")
    return PythonFunction(str(Path(file).resolve()), name, file_sha256(file))


def _digest(reference: PythonFunction) -> str:
    """The digest of the reference's code; empty where it is no plain function."""
    whole = compile(Path(reference.path).read_bytes(), reference.path, "exec", dont_inherit=True)
    return next(code_digests(whole, reference.name), "")


def _last_line(error: ChildError) -> str:
    """The end of a message, which of a traceback is enough."""
    return str(error).strip().splitlines()[-1]


def _is_same(one: Values, other: Values) -> bool:
    return one.form == other.form and one.array.tobytes() == other.array.tobytes()


def _forms(values: Sequence[Any]) -> str:
    return ", ".join(one.form if isinstance(one, Values) else repr(one) for one in values) or "nothing"


def _agree(one: Sequence[Values], other: Sequence[Values], tolerance: float | None) -> bool:
    if [value.form for value in one] != [value.form for value in other]:
        return False
    return all(_deviation(a, b, tolerance, "").ok for a, b in zip(one, other, strict=True))


def _deviation(right: Values, got: Values, tolerance: float | None, name: str) -> Deviation:
    """Deviation of an output, element by element; what is not finite must be so in both."""
    expected, actual = right.numbers.copy(), got.numbers.copy()
    real = np.issubdtype(expected.dtype, np.inexact)
    if tolerance is None:
        tolerance = float(np.sqrt(_roundoff(right)) / 2) if real else 0.0
    if np.array_equal(expected, actual) or not (real or tolerance):  # float64 knows no number beyond 2^53
        error = 0.0 if np.array_equal(expected, actual) else math.inf
        return Deviation(error, tolerance, f"relative error of {name}", 0)
    if real:
        lost = ~np.isfinite(expected) & ((expected == actual) | (np.isnan(expected) & np.isnan(actual)))
        expected[lost], actual[lost] = 0, 0
    return agreement(expected, actual, tolerance, name)


def _roundoff(values: Values) -> float:
    return 2.0**-8 if values.dtype == "bfloat16" else unit_roundoff(values.numbers)
