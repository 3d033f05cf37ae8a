"""What a reading shows of a known power curve: the forward models of ``Response``."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tuner.interfaces import Response

Array = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Curve:
    """True power that is constant between changes.

    Attributes:
        changes_s: times of the changes, increasing, shape (k,), k at least 1.
        watts: power before the first change, between changes and after the last, shape (k + 1,).
    """

    changes_s: Array
    watts: Array

    @staticmethod
    def of_load(busy: Sequence[tuple[float, float]], idle_w: float = 0.0, busy_w: float = 1.0) -> "Curve":
        """A load that is on in the given (start, end) intervals, in order, and off otherwise."""
        changes = np.asarray(busy, dtype=np.float64).ravel()
        watts = np.full(len(changes) + 1, idle_w, dtype=np.float64)
        watts[1::2] = busy_w
        return Curve(changes, watts)

    @cached_property
    def _joules(self) -> Array:
        """Energy from the first change to each."""
        return np.concatenate(([0.0], np.cumsum(np.diff(self.changes_s) * self.watts[1:-1])))

    def at(self, times_s: Array) -> Array:
        """True power at times; on a change, that after it."""
        return self.watts[np.searchsorted(self.changes_s, times_s, side="right")]

    def joules(self, times_s: Array) -> Array:
        """Energy from the first change to times, negative before it."""
        piece = np.searchsorted(self.changes_s, times_s, side="right")
        since = np.maximum(piece - 1, 0)
        return self._joules[since] + self.watts[piece] * (times_s - self.changes_s[since])

    def lagged(self, times_s: Array, capacitance_s: float, rising_s: float | None = None) -> Array:
        """Power seen through a first-order lag that had settled before the first change.

        Args:
            times_s: where it is looked at, of any shape.
            capacitance_s: time constant.
            rising_s: time constant while power is above 0, where it is another.
        """
        constants = np.where(self.watts > 0, rising_s or capacitance_s, capacitance_s)
        forgotten = np.exp(np.diff(self.changes_s) / -constants[1:-1]).tolist()
        shown = [float(self.watts[0])]
        for watts, kept in zip(self.watts[1:-1].tolist(), forgotten, strict=True):
            shown.append(watts + (shown[-1] - watts) * kept)
        piece = np.searchsorted(self.changes_s, times_s, side="right")
        since = np.maximum(piece - 1, 0)
        away_s = np.maximum(times_s - self.changes_s[since], 0.0)
        kept_share = np.exp(away_s / -constants[piece])
        return self.watts[piece] + (np.array(shown)[since] - self.watts[piece]) * kept_share


def shown_watts(curve: Curve, times_s: Array, response: Response) -> Array:
    """What a reading of watts with a given response shows at ``times_s`` of a power curve."""
    seen_s = times_s - response.delay_s
    if response.capacitance_s > 0:
        return curve.lagged(seen_s, response.capacitance_s)
    if response.window_s > 0:
        drawn_j = curve.joules(seen_s) - curve.joules(seen_s - response.window_s)
        return np.asarray(drawn_j / response.window_s)
    return curve.at(seen_s)


def shown_joules(curve: Curve, times_s: Array, response: Response) -> Array:
    """What a counter that integrates power, or power seen through a lag, has counted at ``times_s``.

    The integral of a lag L of the power P is ``integral(P) - C * L``, up to a constant.
    """
    seen_s = times_s - response.delay_s
    counted_j = curve.joules(seen_s)
    if response.capacitance_s > 0:
        counted_j -= response.capacitance_s * curve.lagged(seen_s, response.capacitance_s)
    return counted_j
