"""Right answers of workloads: stated by the user, of a naive kernel, of the default, or found by a check."""

from dataclasses import dataclass, field
from types import ModuleType
from typing import Any

from numpy.typing import NDArray

from tuner.devices.cuda.answer_kernels import AnswerKernels
from tuner.devices.cuda.arrays import BufferPool
from tuner.devices.cuda.checked_runs import CheckedRuns
from tuner.devices.cuda.inputs import Inputs
from tuner.devices.cuda.judged_plans import OUTPUT_ROLES, JudgedKey, judged_key, judged_rows, sizes_of
from tuner.devices.cuda.launches import LaunchRefusedError
from tuner.devices.cuda.laws import Laws
from tuner.devices.cuda.types import Array
from tuner.devices.cuda.unwritten import unwritten
from tuner.model.errors import UncheckableError
from tuner.model.plan import Plan
from tuner.problems.arrays import to_host, values_of
from tuner.problems.base import Norm, Problem
from tuner.problems.stated import StatedReference

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
    """The right answers that outputs are compared with, one of each workload.

    Args:
        cp: CuPy, with the device current.
        pool: the buffers of plans.
        kernels: sum magnitudes.
        inputs: of the plans in the pool.
        laws: judge whether outputs are finite.
        runs: make the answers of plans.
    """

    def __init__(  # noqa: PLR0917 - the parts of one device
        self,
        cp: ModuleType,
        pool: BufferPool,
        kernels: AnswerKernels,
        inputs: Inputs,
        laws: Laws,
        runs: CheckedRuns,
    ) -> None:
        self._cp = cp
        self._pool = pool
        self._kernels = kernels
        self._inputs = inputs
        self._laws = laws
        self._runs = runs
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
        """What a workload's first answer is compared with, if anything can be; kept where there is room.

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
            inputs: dict[str, Any] = values_of(self._inputs.present(plan), plan.buffers)
            if problem.arrays == "cupy":
                self._pool.forget(plan)  # a function of the user's is given the arrays themselves
            else:
                inputs = {name: to_host(array) for name, array in inputs.items()}
            outputs = [buffer for buffer in plan.buffers if buffer.role in OUTPUT_ROLES]
            right = problem.reference(inputs, outputs, sizes_of(plan))
            others = {other: kept for other, kept in self._stated.items() if other[0] != key[0]}
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
        self._kept = {other: kept for other, kept in self._kept.items() if other[0] != key[0]}
        self._kept[key] = reference

    def _has_room(self, plan: Plan) -> bool:
        free = int(self._cp.cuda.runtime.memGetInfo()[0])
        free += int(self._cp.get_default_memory_pool().free_bytes())
        return _REFERENCE_PART * sum(output.nbytes for output in self._runs.written(plan).values()) <= free
