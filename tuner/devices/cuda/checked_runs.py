"""One run of a plan on random inputs, for checks: where it wrote that it must not, and what it left."""

from types import ModuleType

from tuner.devices.cuda.answer_kernels import AnswerKernels
from tuner.devices.cuda.arrays import GUARD_BYTES, BufferPool
from tuner.devices.cuda.code import CodeCache
from tuner.devices.cuda.inputs import Inputs
from tuner.devices.cuda.judged_plans import OUTPUT_ROLES
from tuner.devices.cuda.rounds import RoundRunner
from tuner.devices.cuda.types import Array
from tuner.model.plan import Plan
from tuner.problems.arrays import values_of


class CheckedRuns:
    """Runs plans once, each in its own arrays.

    Args:
        cp: CuPy, with the device current.
        pool: the buffers of plans.
        code: the functions of plans.
        runner: runs them.
        kernels: look at guards.
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

    def run(self, plan: Plan, seed: int) -> None:
        """Run a plan on the inputs of a seed; outputs that it does not write hold a pattern.

        Raises:
            LaunchRefusedError: a stage cannot be compiled, loaded or launched.
            UncheckableError: the inputs cannot be made.
        """
        arrays = self._pool.sets(plan, 1)[0]
        launches = self._code.launches(plan, arrays)
        self._inputs.prepare(plan, seed)
        self._pool.poison(plan)
        self._cp.cuda.runtime.deviceSynchronize()  # the rounds' streams do not wait for the default one
        self._runner.once((*self._code.preparation(plan, arrays), *launches))

    def strayed(self, plan: Plan, seed: int) -> str:
        """Where a run wrote that it must not, or nothing."""
        guards = self._guards(plan)
        slots = self._inputs.begin_look(plan)
        found = self._kernels.read()
        overrun = next((name for name, slot in guards.items() if found[slot]), None)
        if overrun is not None:
            return f"wrote outside of buffer {overrun!r}"
        written = self._inputs.written(
            plan, seed, {buffer: int(found[slot]) for buffer, slot in slots.items()}
        )
        return "" if written is None else f"wrote to buffer {written!r}, whose role is 'in'"

    def written(self, plan: Plan) -> dict[str, Array]:
        """The outputs by name, as the pool holds them."""
        arrays = self._pool.sets(plan, 1)[0]
        return {b.name: arrays[b.name] for b in plan.buffers if b.role in OUTPUT_ROLES}

    def outputs(self, plan: Plan) -> dict[str, Array]:
        """The outputs as numbers."""
        return values_of(self.written(plan), plan.buffers)

    def inputs(self, plan: Plan, seed: int) -> dict[str, Array]:
        """The inputs before the run as numbers."""
        return values_of(self._inputs.copies(plan, seed), plan.buffers)

    def overrun(self, plan: Plan) -> str:
        """Where a run wrote outside of its arrays, or nothing; arrays of role ``in`` may be written."""
        guards = self._guards(plan)
        found = self._kernels.read()
        overrun = next((name for name, slot in guards.items() if found[slot]), None)
        return "" if overrun is None else f"wrote outside of buffer {overrun!r}"

    def _guards(self, plan: Plan) -> dict[str, int]:
        """Slots of the looks at the guards of every array."""
        return {name: self._kernels.guarded(raw, GUARD_BYTES) for name, raw in self._pool.raw(plan).items()}
