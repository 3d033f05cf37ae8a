"""Samples of a reading as arrays, and when what happened while they were taken."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tuner.interfaces import Response, Sample

Array = npt.NDArray[np.float64]

_RESOLVED_S = 1e-9  # times closer together are one
FORGOTTEN = 7.0  # time constants until less than 0.1 % of a short program's energy is still to be shown


@dataclass(frozen=True)
class Timeline:
    """When what happened, on the clock of the samples.

    Attributes:
        began_s: idle from here on.
        started_s: the program started.
        ended_s: the program ended.
        finished_s: the recording ended.
        idle_after_s: how much of the recording's end is to count as idle, beside what was before.
    """

    began_s: float
    started_s: float
    ended_s: float
    finished_s: float
    idle_after_s: float = 0.0

    @property
    def duration_s(self) -> float:
        """How long the program ran."""
        return self.ended_s - self.started_s


@dataclass(frozen=True)
class Series:
    """Samples as arrays of shape (n,), oldest first: times, values, standard uncertainties of the times."""

    times_s: Array
    values: Array
    time_sigmas_s: Array

    @staticmethod
    def of(samples: Sequence[Sample]) -> "Series":
        """Collect samples but those that are no number, or not later than all before them by a nanosecond."""
        rows = np.array([(s.time_s, s.value, s.time_sigma_s) for s in samples], dtype=np.float64)
        rows = rows.reshape(-1, 3)
        rows = rows[np.isfinite(rows).all(axis=1)]
        latest = np.maximum.accumulate(np.concatenate(([-np.inf], rows[:, 0])))
        rows = rows[rows[:, 0] > latest[:-1] + _RESOLVED_S]
        return Series(rows[:, 0], rows[:, 1], rows[:, 2])

    def __len__(self) -> int:
        return len(self.times_s)

    def part(self, first: int, last: int) -> "Series":
        """The samples from index ``first`` to ``last``, both included."""
        chosen = slice(first, last + 1)
        return Series(self.times_s[chosen], self.values[chosen], self.time_sigmas_s[chosen])

    def between(self, start_s: float, end_s: float) -> "Series":
        """The samples from one time to another, which is not included."""
        first, end = np.searchsorted(self.times_s, [start_s, end_s], side="left")
        return self.part(int(first), int(end) - 1)

    def earlier(self, seconds: float) -> "Series":
        """The samples at times ``seconds`` before theirs."""
        return Series(self.times_s - seconds, self.values, self.time_sigmas_s)

    @property
    def duration_s(self) -> float:
        """Time from the first sample to the last."""
        return float(self.times_s[-1] - self.times_s[0]) if len(self) else 0.0


def lasting_s(response: Response) -> float:
    """How long a reading goes on showing what has ended, beyond its delay."""
    return max(FORGOTTEN * response.capacitance_s, response.window_s)


def memory_s(response: Response) -> float:
    """How long after its end a reading shows a program; its delay may be negative, its memory is not."""
    return max(0.0, response.delay_s + lasting_s(response))


def mean_age_s(response: Response) -> float:
    """Age of steady power's energy in what a reading shows, beyond its delay."""
    return response.capacitance_s + response.window_s / 2.0


def age_sigma_s(response: Response) -> float:
    """Standard uncertainty of the age of what a reading shows."""
    return float(
        np.sqrt(
            response.capacitance_sigma_s**2 + (response.window_sigma_s / 2.0) ** 2 + response.delay_sigma_s**2
        )
    )
