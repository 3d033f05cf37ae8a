"""The answer check: one run on random inputs, judged by a law, by sampled rows, and by a right answer.

The first right answer of a workload is judged thoroughly: by the law of its problem on the complete arrays,
and by rows in float64 on the host. It is then kept as *reference*: every element of later answers is
compared with it. Two answers within the allowed error of the truth may differ by twice that. So where one
differs by more than the allowed error, its worst row is judged in float64 on the host, and so is the
reference's: the truth tells which of the two is wrong.

Where the user states what is right (``Stated``, a naive kernel), that is the reference from the beginning.
Where it cannot be made, no configuration is to blame: the check is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from tuner.devices.cuda.answer_kernels import AnswerKernels, Rows, worst_row
from tuner.devices.cuda.buffers import GUARD_BYTES, BufferPool
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.inputs import Inputs
from tuner.devices.cuda.launches import LaunchRefusedError
from tuner.devices.cuda.laws import Laws
from tuner.devices.cuda.rounds import RoundRunner
from tuner.devices.cuda.types import Array
from tuner.devices.cuda.unwritten import unwritten
from tuner.errors import InputError, UncheckableError
from tuner.model import Buffer, Plan, Status, Workload
from tuner.model.elements import BFLOAT16
from tuner.problems import (
    Deviation,
    Law,
    Norm,
    Problem,
    Stated,
    problem_for,
    sample_rows,
    take_rows,
    to_host,
    validate_plan,
)
from tuner.problems.arrays import CHUNK_ELEMENTS, values_of
from tuner.problems.base import worst_of

_OUTPUT_ROLES = ("out", "inout")
_NARROW_ALLOWED = 8 * 2**-8  # of bfloat16: eight units of roundoff
_REFERENCE_PART = 8  # a reference takes no more than this part of the free memory: rounds need theirs

_Key = tuple[Workload, int, tuple[Buffer, ...]]


@dataclass(frozen=True)
class _Reference:
    """A right answer.

    Attributes:
        source: whose it is, in words.
        outputs: copies of the outputs.
        sums: of magnitudes, of the outputs that are compared by ``Norm.ELEMENT``.
    """

    source: str
    outputs: dict[str, Array]
    sums: dict[str, Array] = field(default_factory=dict)


class AnswerCheck:
    """Runs plans once and checks their outputs.

    Args:
        cp: CuPy, with the device current.
        pool: the buffers of plans.
        code: the functions of plans.
        runner: runs them.
        kernels: make inputs and compare.
        inputs: of the plans in the pool.
    """

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
        self._pool = pool
        self._code = code
        self._runner = runner
        self._kernels = kernels
        self._inputs = inputs
        self._laws = Laws(cp, kernels)
        self._references: dict[_Key, _Reference] = {}
        self._stated: dict[_Key, dict[str, NDArray[Any]]] = {}  # on the host, as they may take long to make

    def prepare(self, plan: Plan, seed: int) -> None:
        """Make what the user states to be right, so that checks do not take the time for it.

        Raises:
            UncheckableError: it cannot be made; the message says why.
        """
        self._valid(plan)
        self._pool.evict(_related(plan))
        self._first_reference(_problem(plan), plan, seed)

    def check(self, plan: Plan, seed: int) -> tuple[Status, str]:
        """Status and words for it; the words of a right answer state its error too.

        Raises:
            LaunchRefusedError: a stage cannot be compiled, loaded or launched.
            UncheckableError: the inputs, or what the user states to be right, cannot be made, or the buffers
                are not those of the problem.
            CompilerUnavailableError: the kernels of checks do not compile.
        """
        self._valid(plan)
        self._pool.evict(_related(plan))
        problem, key = _problem(plan), _key(plan, seed)
        if not problem.judged:
            return self._unjudged(plan, seed)
        reference = self._references.get(key) or self._first_reference(problem, plan, seed)
        self._run(plan, seed)
        strayed = self._strayed(plan, seed)
        if strayed:
            self._pool.forget(plan)
            return Status.WRONG_ANSWER, strayed
        found = None if reference is None else self._compared(problem, plan, seed, reference)
        if found is None:
            self._references.pop(key, None)  # it is the reference that was wrong
            found = self._thorough(problem, plan, seed)
            if found[0] is Status.OK and self._has_room(plan):
                self._keep(key, self._reference(problem, plan, f"the answer of [{plan.configuration}]"))
        status, words = found
        left = unwritten(plan, self._written(plan)) if status is Status.WRONG_ANSWER else ""
        return status, f"{left}: {words}" if left else words

    def outputs(self, plan: Plan, seed: int, names: Sequence[str]) -> dict[str, Array]:
        """Arrays as one run on the inputs of a seed leaves them; they are those of the pool.

        Raises:
            LaunchRefusedError: a stage cannot be compiled, loaded or launched.
            UncheckableError: the inputs cannot be made.
        """
        self._valid(plan)
        self._pool.evict(_related(plan))
        self._run(plan, seed)
        arrays = self._pool.sets(plan, 1)[0]
        return {name: arrays[name] for name in names}

    def forget(self) -> None:
        """Give the memory of the references back."""
        self._references.clear()
        self._inputs.forget()

    # --- what is right, from the beginning ----------------------------------------------------------

    def _valid(self, plan: Plan) -> None:
        try:
            validate_plan(plan)
        except InputError as error:
            raise UncheckableError(f"{error} (at {plan.label()})") from error

    def _first_reference(self, problem: Problem, plan: Plan, seed: int) -> _Reference | None:
        """What a workload's first answer is compared with, if anything can be; kept where there is room."""
        if isinstance(problem, Stated):
            reference = self._stated_reference(problem, plan, seed)
        elif plan.reference is not None:
            reference = self._naive_reference(problem, plan.reference, seed)
        elif problem.needs_baseline and plan.baseline is not None:
            self._run(plan.baseline, seed)
            reference = self._reference(
                problem, plan.baseline, f"the answer of [{plan.baseline.configuration}]"
            )
        else:
            return None
        if self._has_room(plan):
            self._keep(_key(plan, seed), reference)
        return reference

    def _stated_reference(self, problem: Stated, plan: Plan, seed: int) -> _Reference:
        key = _key(plan, seed)
        if key not in self._stated:
            self._pool.sets(plan, 1)
            self._inputs.prepare(plan, seed)
            inputs: dict[str, Any] = values_of(self._inputs.present(plan), plan.buffers)
            if problem.arrays == "cupy":
                self._pool.forget(plan)  # a function of the user's is given the arrays themselves
            else:
                inputs = {name: to_host(array) for name, array in inputs.items()}
            outputs = [buffer for buffer in plan.buffers if buffer.role in _OUTPUT_ROLES]
            right = problem.reference(inputs, outputs, _sizes(plan))
            others = {other: kept for other, kept in self._stated.items() if other[0] != key[0]}
            self._stated = {**others, key: right}
        arrays = {name: self._cp.asarray(array) for name, array in self._stated[key].items()}
        return self._summed(problem, arrays, "the reference")

    def _naive_reference(self, problem: Problem, plan: Plan, seed: int) -> _Reference:
        name = f"[problem] reference_entry {plan.problem.entry!r}"
        try:
            self._run(plan, seed)
            trouble = self._strayed(plan, seed) or unwritten(plan, self._written(plan))
        except (LaunchRefusedError, self._cp.cuda.runtime.CUDARuntimeError) as error:
            raise UncheckableError(f"{name}: {error}") from error
        if not trouble:
            finite = self._laws.judge(problem, {}, self._outputs(plan), _sizes(plan))
            trouble = "" if finite.ok else f"wrote NaN or infinity ({finite.what})"
        if trouble:
            self._pool.forget(plan)
            raise UncheckableError(f"{name}: {trouble}; it says what is right, so nothing can be checked")
        return self._reference(problem, plan, f"the answer of {plan.problem.entry}")

    # --- one run ---------------------------------------------------------------------------------

    def _run(self, plan: Plan, seed: int) -> None:
        arrays = self._pool.sets(plan, 1)[0]
        launches = self._code.launches(plan, arrays)
        self._inputs.prepare(plan, seed)
        self._pool.poison(plan)
        self._cp.cuda.runtime.deviceSynchronize()  # the rounds' streams do not wait for the default one
        self._runner.once((*self._code.preparation(plan, arrays), *launches))

    def _strayed(self, plan: Plan, seed: int) -> str:
        """Where a run wrote that it must not, or nothing."""
        guards = {name: self._kernels.guarded(raw, GUARD_BYTES) for name, raw in self._pool.raw(plan).items()}
        slots = self._inputs.begin_look(plan)
        found = self._kernels.read()
        overrun = next((name for name, slot in guards.items() if found[slot]), None)
        if overrun is not None:
            return f"wrote outside of buffer {overrun!r}"
        written = self._inputs.written(
            plan, seed, {buffer: int(found[slot]) for buffer, slot in slots.items()}
        )
        return "" if written is None else f"wrote to buffer {written!r}, whose role is 'in'"

    def _written(self, plan: Plan) -> dict[str, Array]:
        arrays = self._pool.sets(plan, 1)[0]
        return {b.name: arrays[b.name] for b in plan.buffers if b.role in _OUTPUT_ROLES}

    def _outputs(self, plan: Plan) -> dict[str, Array]:
        """The outputs as numbers."""
        return values_of(self._written(plan), plan.buffers)

    def _before(self, plan: Plan, seed: int) -> dict[str, Array]:
        """The inputs before the run as numbers."""
        return values_of(self._inputs.copies(plan, seed), plan.buffers)

    def _unjudged(self, plan: Plan, seed: int) -> tuple[Status, str]:
        """One run of which only the guards are looked at; arrays of role ``in`` may be written."""
        self._run(plan, seed)
        guards = {name: self._kernels.guarded(raw, GUARD_BYTES) for name, raw in self._pool.raw(plan).items()}
        found = self._kernels.read()
        overrun = next((name for name, slot in guards.items() if found[slot]), None)
        if overrun is None:
            return Status.OK, "not compared"
        self._pool.forget(plan)
        return Status.WRONG_ANSWER, f"wrote outside of buffer {overrun!r}"

    # --- without a reference ---------------------------------------------------------------------

    def _thorough(self, problem: Problem, plan: Plan, seed: int) -> tuple[Status, str]:
        """Judge complete outputs by the law of the problem, and some rows by values in float64."""
        inputs, outputs, sizes = self._before(plan, seed), self._outputs(plan), _sizes(plan)
        deviations = [self._laws.judge(problem, inputs, outputs, sizes)]
        if not (problem.needs_baseline or problem.judged_whole) and deviations[0].ok:
            rows = sample_rows(plan.workload.batch, seed)
            axes = _axes(inputs, outputs)
            taken = (take_rows(inputs, rows, axes), take_rows(outputs, rows, axes))
            sampled = problem.compare(*taken, sizes)
            deviations.append(sampled)
            if not sampled.ok:
                return Status.WRONG_ANSWER, f"{sampled} of the sample {rows.tolist()}"
        wrong = next((deviation for deviation in deviations if not deviation.ok), None)
        if wrong is not None:
            return Status.WRONG_ANSWER, str(wrong)
        return Status.OK, "; ".join(map(str, deviations))

    # --- with a reference ------------------------------------------------------------------------

    def _compared(
        self, problem: Problem, plan: Plan, seed: int, reference: _Reference
    ) -> tuple[Status, str] | None:
        """Judge outputs by a right answer; None where that turns out to be the wrong one."""
        found = {
            name: self._difference(problem, reference, name, output)
            for name, output in self._outputs(plan).items()
        }
        worst = worst_of(list(found.values()))
        if worst.ok:
            return Status.OK, str(worst)
        if isinstance(problem, Law):
            return self._by_law(problem, plan, seed)
        if problem.needs_baseline or problem.judged_whole:
            return Status.WRONG_ANSWER, str(worst)
        return self._judged(problem, plan, seed, reference, found)

    def _difference(self, problem: Problem, reference: _Reference, name: str, output: Array) -> Deviation:
        norm, rows = problem.norm(output), _rows(problem, output)
        slot = self._kernels.compare(reference.outputs[name], output, rows, norm, reference.sums.get(name))
        error, row = worst_row(self._kernels.read()[slot])
        what = f"difference of {name} from {reference.source}"
        return Deviation(error, problem.allowed(output), what, row * _problems_in(rows, output))

    def _judged(
        self,
        problem: Problem,
        plan: Plan,
        seed: int,
        reference: _Reference,
        differences: Mapping[str, Deviation],
    ) -> tuple[Status, str] | None:
        """Which of two answers is wrong where they differ most, in one output, by values in float64."""
        inputs, outputs, sizes = self._before(plan, seed), self._outputs(plan), _sizes(plan)
        worst = worst_of(list(differences.values()))
        output = next(outputs[name] for name, deviation in differences.items() if deviation is worst)
        axes = _axes(inputs, outputs)
        part = slice(worst.row, worst.row + _problems_in(_rows(problem, output), output))
        given = _part(inputs, part, axes)
        deviation = problem.compare(given, _part(outputs, part, axes), sizes)
        if not deviation.ok:
            return Status.WRONG_ANSWER, str(replace(deviation, row=deviation.row + worst.row))
        if not problem.compare(given, _part(reference.outputs, part, axes), sizes).ok:
            return None
        return Status.OK, f"{deviation}; {worst}"

    def _by_law(self, problem: Law, plan: Plan, seed: int) -> tuple[Status, str]:
        """Judge an answer that differs from a right one: the law may allow both, and has judged before."""
        try:
            return self._thorough(problem, plan, seed)
        except UncheckableError as error:
            return Status.WRONG_ANSWER, str(error)

    def _reference(self, problem: Problem, plan: Plan, source: str) -> _Reference:
        """Copies of the present outputs."""
        copies = {}
        for name, output in self._outputs(plan).items():
            copies[name] = self._cp.empty(output.shape, dtype=output.dtype)
            self._cp.copyto(copies[name], output)
        return self._summed(problem, copies, source)

    def _summed(self, problem: Problem, outputs: dict[str, Array], source: str) -> _Reference:
        sums = {
            name: self._kernels.magnitudes(output, _rows(problem, output))
            for name, output in outputs.items()
            if problem.norm(output) is Norm.ELEMENT
        }
        return _Reference(source, outputs, sums)

    def _keep(self, key: _Key, reference: _Reference) -> None:
        """Keep the reference instead of others of its workload."""
        self._references = {other: kept for other, kept in self._references.items() if other[0] != key[0]}
        self._references[key] = reference

    def _has_room(self, plan: Plan) -> bool:
        free = int(self._cp.cuda.runtime.memGetInfo()[0])
        free += int(self._cp.get_default_memory_pool().free_bytes())
        return _REFERENCE_PART * sum(output.nbytes for output in self._written(plan).values()) <= free


def _problem(plan: Plan) -> Problem:
    """The problem of a plan; with a tolerance for ``bfloat16``, whose roundoff no array tells."""
    spec = plan.problem
    narrow = any(b.dtype == BFLOAT16 and b.role in _OUTPUT_ROLES for b in plan.buffers)
    return problem_for(
        replace(spec, tolerance=_NARROW_ALLOWED) if narrow and spec.tolerance is None else spec
    )


def _related(plan: Plan) -> list[Plan]:
    return [one for one in (plan, plan.baseline, plan.reference) if one is not None]


def _key(plan: Plan, seed: int) -> _Key:
    judged = tuple(buffer for buffer in plan.buffers if buffer.role in ("in", "inout", "out"))
    return plan.workload, seed, judged


def _rows(problem: Problem, output: Array) -> Rows:
    """What has a scale of its own: problems, or chunks of whole problems as in ``agreement``."""
    size = output.size // len(output)
    if problem.norm(output) is Norm.ELEMENT:
        size *= max(1, CHUNK_ELEMENTS // max(1, size))
    return Rows(output.size, size)


def _problems_in(rows: Rows, output: Array) -> int:
    return rows.length // (output.size // len(output))


def _axes(inputs: Mapping[str, Array], outputs: Mapping[str, Array]) -> int:
    return max(array.ndim for array in (*inputs.values(), *outputs.values()))


def _part(arrays: Mapping[str, Array], part: slice, axes: int) -> dict[str, Any]:
    """Some problems on the host; arrays with fewer axes hold no problems and come whole."""
    return {name: to_host(array[part] if array.ndim == axes else array) for name, array in arrays.items()}


def _sizes(plan: Plan) -> dict[str, Any]:
    return {**dict(plan.workload.sizes), "batch": plan.workload.batch}
