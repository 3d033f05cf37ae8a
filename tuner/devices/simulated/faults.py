"""Injected failures of a simulated device, so that tests need no broken kernel."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from tuner.model.plan import Plan
from tuner.model.trial import Status

_NOT_RUNNING = (Status.LAUNCH_ERROR, Status.TIMEOUT, Status.CRASHED)


@dataclass(frozen=True)
class Faults:
    """A device that fails as told.

    ``compile-error`` appears when resources are asked for, ``wrong-answer`` in checks, and ``launch-error``,
    ``timeout`` and ``crashed`` in checks and runs.

    Attributes:
        single: status by kernel name, or a function of the plan; ok for what it does not name.
        joint: status of each plan of a run, given all of them; for failures that only co-running brings.
    """

    single: Mapping[str, Status] | Callable[[Plan], Status] = field(default_factory=dict)
    joint: Callable[[Sequence[Plan]], Sequence[Status]] | None = None

    def of(self, plan: Plan) -> Status:
        """The failure a plan has by itself, or ok."""
        if callable(self.single):
            return self.single(plan)
        return self.single.get(plan.workload.kernel, Status.OK)

    def in_run(self, plans: Sequence[Plan]) -> list[Status]:
        """Statuses of plans run together."""
        alone = [self.of(plan) for plan in plans]
        statuses = [status if status in _NOT_RUNNING else Status.OK for status in alone]
        if self.joint is not None:
            together = self.joint(plans)
            statuses = [a if a is not Status.OK else b for a, b in zip(statuses, together, strict=True)]
        return statuses
