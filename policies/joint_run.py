"""A search whose trials are rows of a joint space: what it asks for, and what becomes of the answers."""

from abc import ABC, abstractmethod
from collections.abc import Generator, Sequence

from tuner.model.trial import Measurement, Status, Trial
from tuner.space.search_view import Search

from .surrogate.features import Integers
from .surrogate.joint import Joint


class JointRun(ABC):
    """A search so far.

    Args:
        search: what the policy is told.
        joint: the space.

    Attributes:
        evaluations: trials asked for and not ruled out.
        ended_s: when each of them had ended.
    """

    def __init__(self, search: Search, joint: Joint) -> None:
        self.search, self.joint = search, joint
        self.evaluations = 0
        self.ended_s: list[float] = []

    @abstractmethod
    def learn(self, row: Integers, measurement: Measurement) -> None:
        """Take in a measurement."""

    @abstractmethod
    def rule_out(self, row: Integers) -> None:
        """Never ask for a row."""

    def learn_prior(self) -> None:
        """Take in what is measured already, as far as it lies in the space."""
        for trial, measurement in self.search.prior.items():
            row = self.joint.row(trial)
            if row is not None:
                self.learn(row, measurement)

    def measure(
        self, rows: Sequence[Integers], likely: Sequence[Integers] = ()
    ) -> Generator[list[Trial], list[Measurement], None]:
        """Ask for trials and learn what they gave; ``likely`` are those that may be asked for next."""
        if not rows:
            return
        trials = [self.joint.trial(row) for row in rows]
        after = [trial for trial in map(self.joint.trial, likely) if trial not in trials]
        if after:
            self.search.expect(after)
        measurements = yield trials
        for row, measurement in zip(rows, measurements, strict=True):
            if measurement.status is Status.PRUNED:
                self.rule_out(row)
                continue
            self.evaluations += 1
            self.ended_s.append(measurement.ended_s)
            self.learn(row, measurement)
