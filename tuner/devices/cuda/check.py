"""The answer check: one run on fresh random inputs, compared row by row and as a whole."""

from collections.abc import Mapping
from types import ModuleType
from typing import Any

from tuner.devices.cuda.buffers import BufferPool
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.rounds import RoundRunner
from tuner.devices.cuda.types import Array
from tuner.model import Plan, Status
from tuner.problems import Problem, problem_for, same, sample_rows, take_rows, validate_plan

_OUTPUT_ROLES = ("out", "inout")


class AnswerCheck:
    """Runs plans once and checks their outputs."""

    def __init__(self, cp: ModuleType, pool: BufferPool, code: CodeCache, runner: RoundRunner) -> None:
        self._cp = cp
        self._pool = pool
        self._code = code
        self._runner = runner

    def check(self, plan: Plan, seed: int) -> tuple[Status, str]:
        """Status and words for it; the words of a right answer state its error too.

        Raises:
            LaunchRefusedError: a stage cannot be compiled, loaded or launched.
            KernelFileError: the buffers are not those of the problem.
        """
        validate_plan(plan)
        self._pool.evict([plan] if plan.baseline is None else [plan, plan.baseline])
        problem = problem_for(plan.problem)
        inputs = self.inputs(plan, seed)
        reference: Mapping[str, Array] | None = None
        if problem.needs_baseline and plan.baseline is not None:
            self._run(plan.baseline, inputs)
            reference = {name: array.copy() for name, array in self._outputs(plan.baseline).items()}
        self._run(plan, inputs)
        strayed = self._strayed(plan, inputs)
        if strayed:
            self._pool.forget(plan)
            return Status.WRONG_ANSWER, strayed
        return self._judge(problem, plan, inputs, reference, seed)

    def inputs(self, plan: Plan, seed: int) -> dict[str, Array]:
        """Random inputs of the plan's problem, made on the device."""
        random = self._cp.random
        rng = random.Generator(random.Philox4x3210(seed))
        made: dict[str, Array] = problem_for(plan.problem).inputs(self._cp, rng, plan.buffers, _sizes(plan))
        return made

    def _run(self, plan: Plan, inputs: Mapping[str, Array]) -> None:
        arrays = self._pool.sets(plan, 1)[0]
        launches = self._code.launches(plan, arrays)
        self._pool.load(plan, inputs, 1)
        self._pool.poison(plan, inputs)
        self._cp.cuda.runtime.deviceSynchronize()  # the rounds' streams do not wait for the default one
        self._runner.once(launches)

    def _strayed(self, plan: Plan, inputs: Mapping[str, Array]) -> str:
        """Where a run wrote that it must not, or nothing."""
        buffer = self._pool.overrun(plan)
        if buffer is not None:
            return f"wrote outside of buffer {buffer!r}"
        arrays = self._pool.sets(plan, 1)[0]
        for b in plan.buffers:
            if b.role == "in" and not same(inputs[b.name], arrays[b.name]):
                return f"wrote to buffer {b.name!r}, whose role is 'in'"
        return ""

    def _outputs(self, plan: Plan) -> dict[str, Any]:
        arrays = self._pool.sets(plan, 1)[0]
        return {b.name: arrays[b.name] for b in plan.buffers if b.role in _OUTPUT_ROLES}

    def _judge(
        self,
        problem: Problem,
        plan: Plan,
        inputs: Mapping[str, Array],
        reference: Mapping[str, Array] | None,
        seed: int,
    ) -> tuple[Status, str]:
        outputs, sizes = self._outputs(plan), _sizes(plan)
        if reference is not None:
            deviations = [problem.compare_outputs(reference, outputs)]
        else:
            deviations = [problem.residual(self._cp, inputs, outputs, sizes)]
        if not problem.needs_baseline and deviations[0].ok:
            rows = sample_rows(plan.workload.batch, seed)
            axes = max(array.ndim for array in (*inputs.values(), *outputs.values()))
            taken = (take_rows(inputs, rows, axes), take_rows(outputs, rows, axes))
            sampled = problem.compare(*taken, sizes)
            deviations.append(sampled)
            if not sampled.ok:
                return Status.WRONG_ANSWER, f"{sampled} of the sample {rows.tolist()}"
        wrong = next((deviation for deviation in deviations if not deviation.ok), None)
        if wrong is not None:
            return Status.WRONG_ANSWER, str(wrong)
        return Status.OK, "; ".join(map(str, deviations))


def _sizes(plan: Plan) -> dict[str, Any]:
    return {**dict(plan.workload.sizes), "batch": plan.workload.batch}
