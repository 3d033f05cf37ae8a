"""The trials of a list that are still to be measured, in its order; lost ones come first."""

from collections import Counter, deque
from collections.abc import Iterator

from tuner.measurement.base import PlannedTrial
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult

MOST_LOSSES = 3
"""Workers lost with one trial, until it is taken to be what kills them."""


class TrialQueue:
    """Hands out trials one by one, and those again whose worker was lost.

    Args:
        trials: asked for the next one when it is wanted.
    """

    def __init__(self, trials: Iterator[PlannedTrial]) -> None:
        self._trials = trials
        self._again: deque[PlannedTrial] = deque()
        self._losses: Counter[Trial] = Counter()
        self._exhausted = False

    @property
    def exhausted(self) -> bool:
        """True when nothing is left to hand out."""
        return self._exhausted and not self._again

    def next(self) -> PlannedTrial | None:
        """The next trial; None when there is none."""
        if self._again:
            return self._again.popleft()
        planned = None if self._exhausted else next(self._trials, None)
        self._exhausted = planned is None
        return planned

    def lose(self, planned: PlannedTrial) -> tuple[Trial, Measurement] | None:
        """Put a trial back whose worker was lost; after too many losses it has failed."""
        self._losses[planned.trial] += 1
        if self._losses[planned.trial] < MOST_LOSSES:
            self._again.append(planned)
            return None
        detail = f"{MOST_LOSSES} workers of the pool were lost with it"
        failed = tuple(WorkloadResult(Status.CRASHED, detail=detail) for _ in planned.trial.configurations)
        return planned.trial, Measurement(failed)
