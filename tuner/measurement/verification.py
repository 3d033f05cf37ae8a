"""Which answers are right: every configuration of a workload is checked once."""

import hashlib
from collections.abc import Iterable, Sequence

from tuner.devices.base import Check, Device
from tuner.model.plan import Configuration, Plan, Workload, without_priority
from tuner.model.trial import Measurement, Status, Trial

_KNOWN_FOR_SURE = (Status.OK, Status.COMPILE_ERROR, Status.WRONG_ANSWER)


class AnswerChecks:
    """The checks made so far.

    Args:
        device: makes them.
        seed: of the random inputs.
    """

    def __init__(self, device: Device, seed: int) -> None:
        self._device = device
        self._seed = seed
        self._known: dict[tuple[Workload, Configuration], Check] = {}

    def missing(self, plans: Sequence[Plan]) -> list[Plan]:
        """The plans that were not checked yet."""
        return [plan for plan in plans if _key(plan) not in self._known]

    def make(self, plans: Sequence[Plan]) -> float:
        """Check plans; returns the seconds that took."""
        seconds = 0.0
        for plan in plans:
            check = self._device.check(plan, self._seed_of(plan))
            self._known[_key(plan)] = check
            seconds += check.seconds
        return seconds

    def of(self, plans: Sequence[Plan]) -> list[Check]:
        """The checks of plans that were all checked."""
        return [self._known[_key(plan)] for plan in plans]

    def recall(self, trials: Iterable[tuple[Trial, Measurement]], workloads: Sequence[Workload]) -> None:
        """Take over from stored trials which answers were right and which were not.

        A crash or a time-out need not have been the check's, so those are checked again.
        """
        for trial, measurement in trials:
            parts = zip(workloads, trial.configurations, measurement.results, strict=True)
            for workload, configuration, result in parts:
                if result.status in _KNOWN_FOR_SURE:
                    self._known[workload, without_priority(configuration)] = Check(
                        result.status, result.detail
                    )

    def _seed_of(self, plan: Plan) -> int:
        """One seed for all configurations of a workload, so that they are given the same inputs."""
        digest = hashlib.blake2b(f"{self._seed}|{plan.workload}".encode(), digest_size=4).digest()
        return int.from_bytes(digest, "little")


def _key(plan: Plan) -> tuple[Workload, Configuration]:
    return plan.workload, without_priority(plan.configuration)
