"""The answer check: one run on random inputs, judged by a law, by sampled rows, and by a right answer.

The first right answer of a workload is judged thoroughly: by the law of its problem on the complete arrays,
and by rows in float64 on the host. It is then kept as *reference*: every element of later answers is
compared with it. Two answers within the allowed error of the truth may differ by twice that. So where one
differs by more than the allowed error, its worst row is judged in float64 on the host, and so is the
reference's: the truth tells which of the two is wrong.

Where the user states what is right (``StatedReference``, a naive kernel), that is the reference from the
beginning. Where it cannot be made, no configuration is to blame: the check is refused.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from types import ModuleType

from tuner.devices.cuda.answer_kernels import AnswerKernels, worst_row
from tuner.devices.cuda.arrays import BufferPool
from tuner.devices.cuda.checked_runs import CheckedRuns
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.inputs import Inputs
from tuner.devices.cuda.judged_plans import (
    axes_of,
    judged_rows,
    part_of,
    problem_of,
    problems_in,
    related_plans,
    sizes_of,
)
from tuner.devices.cuda.laws import Laws
from tuner.devices.cuda.right_answers import RightAnswer, RightAnswers
from tuner.devices.cuda.rounds import RoundRunner
from tuner.devices.cuda.types import Array
from tuner.devices.cuda.unwritten import unwritten
from tuner.model.errors import InputError, UncheckableError
from tuner.model.plan import Plan
from tuner.model.trial import Status
from tuner.problems import validate_plan
from tuner.problems.arrays import sample_rows, take_rows
from tuner.problems.base import Deviation, Problem, worst_of
from tuner.problems.stated import Law


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
        self._pool = pool
        self._kernels = kernels
        self._inputs = inputs
        self._laws = Laws(cp, kernels)
        self._runs = CheckedRuns(cp, pool, code, runner, kernels, inputs)
        self._right = RightAnswers(cp, pool, kernels, inputs, self._laws, self._runs)

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
        if not problem.judged:
            return self._unjudged(plan, seed)
        reference = self._right.of(problem, plan, seed)
        self._runs.run(plan, seed)
        strayed = self._runs.strayed(plan, seed)
        if strayed:
            self._pool.forget(plan)
            return Status.WRONG_ANSWER, strayed
        found = None if reference is None else self._compared(problem, plan, seed, reference)
        if found is None:
            self._right.drop(plan, seed)  # it is the reference that was wrong
            found = self._thorough(problem, plan, seed)
            if found[0] is Status.OK:
                self._right.keep(problem, plan, seed)
        status, words = found
        left = unwritten(plan, self._runs.written(plan)) if status is Status.WRONG_ANSWER else ""
        return status, f"{left}: {words}" if left else words

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

    def _unjudged(self, plan: Plan, seed: int) -> tuple[Status, str]:
        """One run of which only the guards are looked at."""
        self._runs.run(plan, seed)
        overrun = self._runs.overrun(plan)
        if not overrun:
            return Status.OK, "not compared"
        self._pool.forget(plan)
        return Status.WRONG_ANSWER, overrun

    # --- without a reference ---------------------------------------------------------------------

    def _thorough(self, problem: Problem, plan: Plan, seed: int) -> tuple[Status, str]:
        """Judge complete outputs by the law of the problem, and some rows by values in float64."""
        inputs, outputs, sizes = self._runs.inputs(plan, seed), self._runs.outputs(plan), sizes_of(plan)
        deviations = [self._laws.judge(problem, inputs, outputs, sizes)]
        if not (problem.needs_baseline or problem.judged_whole) and deviations[0].ok:
            rows = sample_rows(plan.workload.batch, seed)
            axes = axes_of(inputs, outputs)
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
        self, problem: Problem, plan: Plan, seed: int, reference: RightAnswer
    ) -> tuple[Status, str] | None:
        """Judge outputs by a right answer; None where that turns out to be the wrong one."""
        found = {
            name: self._difference(problem, reference, name, output)
            for name, output in self._runs.outputs(plan).items()
        }
        worst = worst_of(list(found.values()))
        if worst.ok:
            return Status.OK, str(worst)
        if isinstance(problem, Law):
            return self._by_law(problem, plan, seed)
        if problem.needs_baseline or problem.judged_whole:
            return Status.WRONG_ANSWER, str(worst)
        return self._judged(problem, plan, seed, reference, found)

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
        given = part_of(inputs, part, axes)
        deviation = problem.compare(given, part_of(outputs, part, axes), sizes)
        if not deviation.ok:
            return Status.WRONG_ANSWER, str(replace(deviation, row=deviation.row + worst.row))
        if not problem.compare(given, part_of(reference.outputs, part, axes), sizes).ok:
            return None
        return Status.OK, f"{deviation}; {worst}"

    def _by_law(self, problem: Law, plan: Plan, seed: int) -> tuple[Status, str]:
        """Judge an answer that differs from a right one: the law may allow both, and has judged before."""
        try:
            return self._thorough(problem, plan, seed)
        except UncheckableError as error:
            return Status.WRONG_ANSWER, str(error)
