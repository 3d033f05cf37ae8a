"""The answer check: one run on random inputs, judged by a law, by sampled rows, and by a right answer.

The first right answer of a workload is judged thoroughly: by the law of its problem on the complete arrays,
and by rows in float64 on the host. It is then kept as *reference*: every element of later answers is
compared with it. Two answers within the allowed error of the truth may differ by twice that. So where one
differs by more than the allowed error, its worst row is judged in float64 on the host, and so is the
reference's: the truth tells which of the two is wrong.

Where the user states what is right (``StatedReference``, a naive kernel), that is the reference from the
beginning. Where it cannot be made, no configuration is to blame: the check is refused.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.devices.cuda.answer_kernels import AnswerKernels, Rows, worst_row
from tuner.devices.cuda.arrays import GUARD_BYTES, BufferPool, Inputs
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.driver import Array
from tuner.devices.cuda.launches import LaunchRefusedError
from tuner.devices.cuda.rounds import RoundRunner
from tuner.model.elements import BFLOAT16
from tuner.model.errors import InputError, UncheckableError
from tuner.model.plan import Buffer, Plan, ProblemSpec, Workload
from tuner.model.trial import Status
from tuner.problems.base import (
    CHUNK_ELEMENTS,
    Deviation,
    Norm,
    Problem,
    chunks,
    sample_rows,
    take_rows,
    to_host,
    value_dtype,
    values_of,
    worst_of,
)
from tuner.problems.lookup import problem_for, validate_plan
from tuner.problems.scans import Scan
from tuner.problems.stated import Consistent, Law, NaiveKernel, StatedReference
from tuner.problems.transforms import FUNCTIONAL_SPREAD, Fft
from tuner.problems.tridiagonal import Tridiagonal

# --- What an answer check needs to know of a plan: its problem, what it is held against, how outputs are cut.

OUTPUT_ROLES = ("out", "inout")
JudgedKey = tuple[Workload, int, ProblemSpec, tuple[Buffer, ...]]
"""Workload, seed, and the buffers that are read or written."""

_NARROW_ALLOWED = 8 * 2**-8  # of bfloat16: eight units of roundoff


def problem_of(plan: Plan) -> Problem:
    """The problem of a plan; with a tolerance for rounding to ``bfloat16``, which no array tells."""
    spec = plan.problem
    narrow = any(b.dtype == BFLOAT16 and b.role in OUTPUT_ROLES for b in plan.buffers)
    narrowed = replace(spec, tolerance=_NARROW_ALLOWED) if narrow and spec.tolerance is None else spec
    return problem_for(narrowed).at(sizes_of(plan))


def related_plans(plan: Plan) -> list[Plan]:
    """The plan, and those whose answers it is held against."""
    return [each for each in (plan, plan.baseline, plan.reference) if each is not None]


def judged_key(plan: Plan, seed: int) -> JudgedKey:
    """Return the key that answers share if they are compared with the same right answer."""
    judged = tuple(buffer for buffer in plan.buffers if buffer.role in ("in", "inout", "out"))
    return plan.workload, seed, plan.problem, judged


def judged_rows(problem: Problem, output: Array) -> Rows:
    """Return rows with a scale of their own: problems, or chunks of whole ones as in ``agreement``."""
    size = output.size // len(output)
    if problem.norm(output) is Norm.ELEMENT:
        size *= max(1, CHUNK_ELEMENTS // max(1, size))
    return Rows(output.size, size)


def problems_in(rows: Rows, output: Array) -> int:
    """Problems in a row."""
    return rows.length // (output.size // len(output))


def axes_of(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> int:
    """Axes of the arrays that hold problems: the most."""
    return max(array.ndim for array in (*inputs.values(), *outputs.values()))


def part_of(arrays: Mapping[str, Array], part: slice, axes: int) -> dict[str, NDArray[Any]]:
    """Some problems on the host; arrays with fewer axes hold no problems and come whole."""
    return {name: to_host(array[part] if array.ndim == axes else array) for name, array in arrays.items()}


def sizes_of(plan: Plan) -> dict[str, int | str]:
    """The sizes of a workload, with ``batch``."""
    return {**dict(plan.workload.sizes), "batch": plan.workload.batch}


class CheckedRuns:
    """Runs plans once, each in its own arrays."""

    def __init__(  # noqa: PLR0917 - the parts of one device
        self,
        cp: ModuleType,
        pool: BufferPool,
        code: CodeCache,
        runner: RoundRunner,
        kernels: AnswerKernels,
        inputs: Inputs,
    ) -> None:
        self._cp = cp
        self.pool = pool
        self._code = code
        self._runner = runner
        self.kernels = kernels
        self.input_values = inputs

    def run(self, plan: Plan, seed: int) -> None:
        """Run a plan on the inputs of a seed; outputs that it does not write hold a pattern.

        Raises:
            LaunchRefusedError: a stage cannot be compiled, loaded or launched.
            UncheckableError: the inputs cannot be made.
        """
        arrays = self.pool.sets(plan, 1)[0]
        launches = self._code.launches(plan, arrays)
        self.input_values.prepare(plan, seed)
        self.pool.poison(plan)
        self._cp.cuda.runtime.deviceSynchronize()  # the rounds' streams do not wait for the default one
        self._runner.once((*self._code.preparation(plan, arrays), *launches))

    def strayed(self, plan: Plan, seed: int) -> str:
        """Return a message if a run wrote outside of a buffer, or to one of role ``in``; else empty."""
        guards = self._guards(plan)
        slots = self.input_values.begin_look(plan)
        looks = self.kernels.read()
        overrun = next((name for name, slot in guards.items() if looks[slot]), None)
        if overrun is not None:
            return f"wrote outside of buffer {overrun!r}"
        digests = {buffer: int(looks[slot]) for buffer, slot in slots.items()}
        written = self.input_values.written(plan, seed, digests)
        return "" if written is None else f"wrote to buffer {written!r}, whose role is 'in'"

    def written(self, plan: Plan) -> dict[str, Array]:
        """The outputs by name, as the pool holds them."""
        arrays = self.pool.sets(plan, 1)[0]
        return {b.name: arrays[b.name] for b in plan.buffers if b.role in OUTPUT_ROLES}

    def outputs(self, plan: Plan) -> dict[str, Array]:
        """The outputs as numbers."""
        return values_of(self.written(plan), plan.buffers)

    def inputs(self, plan: Plan, seed: int) -> dict[str, Array]:
        """The inputs before the run as numbers."""
        return values_of(self.input_values.copies(plan, seed), plan.buffers)

    def overrun(self, plan: Plan) -> str:
        """Return a message if a run wrote outside of its arrays, else empty; role ``in`` may be written."""
        guards = self._guards(plan)
        looks = self.kernels.read()
        overrun = next((name for name, slot in guards.items() if looks[slot]), None)
        return "" if overrun is None else f"wrote outside of buffer {overrun!r}"

    def _guards(self, plan: Plan) -> dict[str, int]:
        """Slots of the looks at the guards of every array."""
        return {name: self.kernels.guarded(raw, GUARD_BYTES) for name, raw in self.pool.raw(plan).items()}


# --- The laws of right answers, tested on complete arrays by the kernels of ``answers.cu``.
#
# They are the ``residual`` of the problems. A problem or a type without a kernel is judged by its own
# ``residual`` in CuPy.

_Arrays = Mapping[str, Array]
_Sizes = Mapping[str, Any]


class Laws:
    """Judges complete outputs by the laws of their problems."""

    def __init__(self, cp: ModuleType, kernels: AnswerKernels) -> None:
        self._cp = cp
        self._kernels = kernels
        self._known: dict[type[Problem], Callable[[Any, _Arrays, _Arrays, _Sizes], Deviation]] = {
            Scan: self._scan,
            Tridiagonal: self._tridiagonal,
            Fft: self._fft,
            Consistent: self._consistent,
            NaiveKernel: self._consistent,
            Law: self._law,
        }

    def judge(self, problem: Problem, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes) -> Deviation:
        """The deviation of complete outputs, see ``Problem.residual``."""
        law = self._known.get(type(problem))
        if law is None:
            return problem.residual(self._cp, inputs, outputs, sizes)
        return law(problem, inputs, outputs, sizes)

    def _scan(self, problem: Scan, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes) -> Deviation:
        (x,), (y,) = inputs.values(), outputs.values()
        forward_sum = (
            problem.word("operator", sizes) == "sum" and problem.word("direction", sizes) == "forward"
        )
        if not forward_sum or y.dtype.kind == "c":
            return problem.residual(self._cp, inputs, outputs, sizes)
        slot = self._kernels.sums_law(x, y, exclusive=problem.word("form", sizes) == "exclusive")
        what = (
            "residual of the sums by the row's largest sum"
            if y.dtype.kind == "f"
            else "wrong sums (residual)"
        )
        return self._found(slot, problem.allowed(y), what)

    def _tridiagonal(
        self, problem: Tridiagonal, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes
    ) -> Deviation:
        a, b, c, d = inputs.values()
        (x,) = outputs.values()
        uneven = len({(array.dtype, array.shape) for array in (a, b, c, d, x)}) > 1
        if uneven or x.dtype.kind == "c" or problem.at(sizes).periodic:
            return problem.residual(self._cp, inputs, outputs, sizes)
        slot = self._kernels.system_law((a, b, c, d, x))
        return self._found(slot, problem.allowed(x), "backward error of the solution")

    def _fft(self, problem: Fft, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes) -> Deviation:
        (x,), (y,) = inputs.values(), outputs.values()
        if x.dtype != y.dtype:
            return problem.residual(self._cp, inputs, outputs, sizes)
        phases, transformed, growth = problem.functional(x.shape[1], sizes)
        functional = (self._cp.asarray(phases), self._cp.asarray(transformed))
        slot = self._kernels.transform_law(x, y, functional, growth, FUNCTIONAL_SPREAD)
        what = "deviation of the transform from Parseval's law and a random functional"
        return self._found(slot, problem.allowed(y), what)

    def _consistent(self, problem: Consistent, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes) -> Deviation:
        """An output differs from itself where it is not finite."""
        del problem, inputs, sizes
        deviations = []
        for name, output in outputs.items():
            length = output[0].size
            slot = self._kernels.compare(output, output, Rows(output.size, length), Norm.MAXIMUM)
            deviations.append(self._found(slot, 0.0, f"{name} finite"))
        return worst_of(deviations)

    def _law(self, problem: Law, inputs: _Arrays, outputs: _Arrays, sizes: _Sizes) -> Deviation:
        """The user's law, of outputs that are finite."""
        finite = self._consistent(Consistent(problem.spec), inputs, outputs, sizes)
        return problem.verdict(inputs, outputs, sizes) if finite.ok else finite

    def _found(self, slot: int, allowed: float, what: str) -> Deviation:
        error, row = worst_row(self._kernels.read()[slot])
        return Deviation(error, allowed, what, row)


_LOOKED_AT = 2**24  # elements of an output: only wrong answers are looked at, but there may be many


def unwritten(plan: Plan, outputs: Mapping[str, Array]) -> str:
    """Which outputs were not written, wholly or in part; empty where all were.

    Whole numbers count only where the complete output is as it was filled, as they may be -1. Outputs that
    are inputs, too, hold values before the run, and are never found here.

    Args:
        plan: whose outputs they are.
        outputs: the arrays after the run, filled with one-bits before it.
    """
    for buffer in plan.buffers:
        if buffer.role == "out":
            untouched, seen = _left(outputs[buffer.name])
            if untouched == seen:
                return f"output {buffer.name!r} was not written"
            if untouched and value_dtype(buffer.dtype).kind in "fc":
                return f"output {buffer.name!r} was not written in {untouched} of {seen} elements"
    return ""


def _left(output: Array) -> tuple[int, int]:
    """Elements as they were filled, and elements that were looked at."""
    flat, untouched, seen = output.reshape(-1), 0, 0
    for piece in chunks(flat.size, 1):
        if seen >= _LOOKED_AT:
            break
        host = to_host(flat[piece])
        width = min(host.itemsize, 8)
        words = host.view(f"u{width}").reshape(host.size, -1)
        untouched += int(np.count_nonzero((words == 2 ** (8 * width) - 1).all(axis=1)))
        seen += host.size
    return untouched, seen


# --- Right answers of workloads: stated by the user, of a naive kernel, of the default, or found by a check.

_REFERENCE_PART = 8  # a reference takes no more than this part of the free memory: rounds need theirs


@dataclass(frozen=True)
class RightAnswer:
    """A right answer.

    Attributes:
        source: whose it is, in words.
        outputs: copies of the outputs.
        sums: of magnitudes, of the outputs that are compared by ``Norm.ELEMENT``.
    """

    source: str
    outputs: dict[str, Array]
    sums: dict[str, Array] = field(default_factory=dict)


class RightAnswers:
    """The right answers that outputs are compared with, one of each workload."""

    def __init__(self, cp: ModuleType, laws: Laws, runs: CheckedRuns) -> None:
        self._cp = cp
        self._laws = laws
        self._runs = runs
        self._pool, self._kernels, self._inputs = runs.pool, runs.kernels, runs.input_values
        self._kept: dict[JudgedKey, RightAnswer] = {}
        self._stated: dict[JudgedKey, dict[str, NDArray[Any]]] = {}  # on the host

    def of(self, problem: Problem, plan: Plan, seed: int) -> RightAnswer | None:
        """The right answer of a workload: the one that is kept, else the one that can be made beforehand.

        Raises:
            LaunchRefusedError: the default configuration, whose answer is needed, cannot be launched.
            UncheckableError: what the user states to be right cannot be made.
        """
        return self._kept.get(judged_key(plan, seed)) or self.first(problem, plan, seed)

    def keep(self, problem: Problem, plan: Plan, seed: int) -> None:
        """Keep the present outputs of a plan as the right answer, where there is room."""
        if self._has_room(plan):
            answer = self._present(problem, plan, f"the answer of [{plan.configuration}]")
            self._keep(judged_key(plan, seed), answer)

    def drop(self, plan: Plan, seed: int) -> None:
        """Forget the answer of a workload, which was wrong."""
        self._kept.pop(judged_key(plan, seed), None)

    def forget(self) -> None:
        """Give the memory of the answers back."""
        self._kept.clear()

    def first(self, problem: Problem, plan: Plan, seed: int) -> RightAnswer | None:
        """Return the reference of a workload's first answer; None without one. It is stored if there is room.

        Raises:
            LaunchRefusedError: as ``of``.
            UncheckableError: as ``of``.
        """
        if isinstance(problem, StatedReference):
            reference = self._stated_reference(problem, plan, seed)
        elif plan.reference is not None:
            reference = self._naive_reference(problem, plan.reference, seed)
        elif problem.needs_baseline and plan.baseline is not None:
            self._runs.run(plan.baseline, seed)
            reference = self._present(
                problem, plan.baseline, f"the answer of [{plan.baseline.configuration}]"
            )
        else:
            return None
        if self._has_room(plan):
            self._keep(judged_key(plan, seed), reference)
        return reference

    def _stated_reference(self, problem: StatedReference, plan: Plan, seed: int) -> RightAnswer:
        key = judged_key(plan, seed)
        if key not in self._stated:
            self._pool.sets(plan, 1)
            self._inputs.prepare(plan, seed)
            inputs: Mapping[str, Array | NDArray[Any]]
            inputs = values_of(self._inputs.present(plan), plan.buffers)
            if problem.arrays == "cupy":
                self._pool.forget(plan)  # a function of the user's is given the arrays themselves
            else:
                inputs = {name: to_host(array) for name, array in inputs.items()}
            outputs = [buffer for buffer in plan.buffers if buffer.role in OUTPUT_ROLES]
            right = problem.reference(inputs, outputs, sizes_of(plan))
            others = {other: arrays for other, arrays in self._stated.items() if other[0] != key[0]}
            self._stated = {**others, key: right}
        arrays = {name: self._cp.asarray(array) for name, array in self._stated[key].items()}
        return self._summed(problem, arrays, "the reference")

    def _naive_reference(self, problem: Problem, plan: Plan, seed: int) -> RightAnswer:
        name = f"[problem] reference_entry {plan.problem.entry!r}"
        try:
            self._runs.run(plan, seed)
            trouble = self._runs.strayed(plan, seed) or unwritten(plan, self._runs.written(plan))
        except (LaunchRefusedError, self._cp.cuda.runtime.CUDARuntimeError) as error:
            raise UncheckableError(f"{name}: {error}") from error
        if not trouble:
            finite = self._laws.judge(problem, {}, self._runs.outputs(plan), sizes_of(plan))
            trouble = "" if finite.ok else f"wrote NaN or infinity ({finite.what})"
        if trouble:
            self._pool.forget(plan)
            raise UncheckableError(f"{name}: {trouble}; it says what is right, so nothing can be checked")
        return self._present(problem, plan, f"the answer of {plan.problem.entry}")

    def _present(self, problem: Problem, plan: Plan, source: str) -> RightAnswer:
        """Copies of the present outputs."""
        copies = {}
        for name, output in self._runs.outputs(plan).items():
            copies[name] = self._cp.empty(output.shape, dtype=output.dtype)
            self._cp.copyto(copies[name], output)
        return self._summed(problem, copies, source)

    def _summed(self, problem: Problem, outputs: dict[str, Array], source: str) -> RightAnswer:
        sums = {
            name: self._kernels.magnitudes(output, judged_rows(problem, output))
            for name, output in outputs.items()
            if problem.norm(output) is Norm.ELEMENT
        }
        return RightAnswer(source, outputs, sums)

    def _keep(self, key: JudgedKey, reference: RightAnswer) -> None:
        """Keep the reference instead of others of its workload."""
        self._kept = {other: answer for other, answer in self._kept.items() if other[0] != key[0]}
        self._kept[key] = reference

    def _has_room(self, plan: Plan) -> bool:
        free = int(self._cp.cuda.runtime.memGetInfo()[0])
        free += int(self._cp.get_default_memory_pool().free_bytes())
        return _REFERENCE_PART * sum(output.nbytes for output in self._runs.written(plan).values()) <= free


class AnswerCheck:
    """Runs plans once and checks their outputs."""

    def __init__(self, cp: ModuleType, runs: CheckedRuns) -> None:
        self._runs = runs
        self._pool, self._kernels, self._inputs = runs.pool, runs.kernels, runs.input_values
        self._laws = Laws(cp, runs.kernels)
        self._right = RightAnswers(cp, self._laws, runs)

    def prepare(self, plan: Plan, seed: int) -> None:
        """Make what the user states to be right, so that checks do not take the time for it.

        Raises:
            UncheckableError: it cannot be made; the message says why.
        """
        self._valid(plan)
        self._pool.evict(related_plans(plan))
        self._right.first(problem_of(plan), plan, seed)

    def check(self, plan: Plan, seed: int) -> tuple[Status, str]:
        """Status and words for it; the words of a right answer state its error too.

        Raises:
            LaunchRefusedError: a stage cannot be compiled, loaded or launched.
            UncheckableError: the inputs, or what the user states to be right, cannot be made, or the buffers
                are not those of the problem.
            CompilerUnavailableError: the kernels of checks do not compile.
        """
        self._valid(plan)
        self._pool.evict(related_plans(plan))
        problem = problem_of(plan)
        if not problem.judged:  # only the guards are looked at
            self._runs.run(plan, seed)
            overrun = self._runs.overrun(plan)
            if not overrun:
                return Status.OK, "not compared"
            self._pool.forget(plan)
            return Status.WRONG_ANSWER, overrun
        reference = self._right.of(problem, plan, seed)
        self._runs.run(plan, seed)
        strayed = self._runs.strayed(plan, seed)
        if strayed:
            self._pool.forget(plan)
            return Status.WRONG_ANSWER, strayed
        judged = None if reference is None else self._compared(problem, plan, seed, reference)
        if judged is None:
            self._right.drop(plan, seed)  # it is the reference that was wrong
            judged = self._thorough(problem, plan, seed)
            if judged[0] is Status.OK:
                self._right.keep(problem, plan, seed)
        status, words = judged
        untouched = unwritten(plan, self._runs.written(plan)) if status is Status.WRONG_ANSWER else ""
        return status, f"{untouched}: {words}" if untouched else words

    def outputs(self, plan: Plan, seed: int, names: Sequence[str]) -> dict[str, Array]:
        """Arrays as one run on the inputs of a seed leaves them; they are those of the pool.

        Raises:
            LaunchRefusedError: a stage cannot be compiled, loaded or launched.
            UncheckableError: the inputs cannot be made.
        """
        self._valid(plan)
        self._pool.evict(related_plans(plan))
        self._runs.run(plan, seed)
        arrays = self._pool.sets(plan, 1)[0]
        return {name: arrays[name] for name in names}

    def forget(self) -> None:
        """Give the memory of the references back."""
        self._right.forget()
        self._inputs.forget()

    def _valid(self, plan: Plan) -> None:
        try:
            validate_plan(plan)
        except InputError as error:
            raise UncheckableError(f"{error} (at {plan.label()})") from error

    # --- without a reference ---------------------------------------------------------------------

    def _thorough(self, problem: Problem, plan: Plan, seed: int) -> tuple[Status, str]:
        """Judge complete outputs by the law of the problem, and some rows by values in float64."""
        inputs, outputs, sizes = self._runs.inputs(plan, seed), self._runs.outputs(plan), sizes_of(plan)
        deviations = [self._laws.judge(problem, inputs, outputs, sizes)]
        if not (problem.needs_baseline or problem.judged_whole) and deviations[0].ok:
            rows = sample_rows(plan.workload.batch, seed)
            axes = axes_of(inputs, outputs)
            sample = (take_rows(inputs, rows, axes), take_rows(outputs, rows, axes))
            sampled = problem.compare(*sample, sizes)
            deviations.append(sampled)
            if not sampled.ok:
                return Status.WRONG_ANSWER, f"{sampled} of the sample {rows.tolist()}"
        wrong = next((deviation for deviation in deviations if not deviation.ok), None)
        if wrong is not None:
            return Status.WRONG_ANSWER, str(wrong)
        return Status.OK, "; ".join(map(str, deviations))

    # --- with a reference ------------------------------------------------------------------------

    def _compared(
        self, problem: Problem, plan: Plan, seed: int, reference: RightAnswer
    ) -> tuple[Status, str] | None:
        """Judge outputs by a right answer; None where that turns out to be the wrong one."""
        differences = {
            name: self._difference(problem, reference, name, output)
            for name, output in self._runs.outputs(plan).items()
        }
        worst = worst_of(list(differences.values()))
        if worst.ok:
            return Status.OK, str(worst)
        if isinstance(problem, Law):  # it may allow both answers, and has judged the other one
            try:
                return self._thorough(problem, plan, seed)
            except UncheckableError as error:
                return Status.WRONG_ANSWER, str(error)
        if problem.needs_baseline or problem.judged_whole:
            return Status.WRONG_ANSWER, str(worst)
        return self._judged(problem, plan, seed, reference, differences)

    def _difference(self, problem: Problem, reference: RightAnswer, name: str, output: Array) -> Deviation:
        norm, rows = problem.norm(output), judged_rows(problem, output)
        slot = self._kernels.compare(reference.outputs[name], output, rows, norm, reference.sums.get(name))
        error, row = worst_row(self._kernels.read()[slot])
        what = f"difference of {name} from {reference.source}"
        return Deviation(error, problem.allowed(output), what, row * problems_in(rows, output))

    def _judged(
        self,
        problem: Problem,
        plan: Plan,
        seed: int,
        reference: RightAnswer,
        differences: Mapping[str, Deviation],
    ) -> tuple[Status, str] | None:
        """Which of two answers is wrong where they differ most, in one output, by values in float64."""
        inputs, outputs, sizes = self._runs.inputs(plan, seed), self._runs.outputs(plan), sizes_of(plan)
        worst = worst_of(list(differences.values()))
        output = next(outputs[name] for name, deviation in differences.items() if deviation is worst)
        axes = axes_of(inputs, outputs)
        part = slice(worst.row, worst.row + problems_in(judged_rows(problem, output), output))
        part_inputs = part_of(inputs, part, axes)
        deviation = problem.compare(part_inputs, part_of(outputs, part, axes), sizes)
        if not deviation.ok:
            return Status.WRONG_ANSWER, str(replace(deviation, row=deviation.row + worst.row))
        if not problem.compare(part_inputs, part_of(reference.outputs, part, axes), sizes).ok:
            return None
        return Status.OK, f"{deviation}; {worst}"
