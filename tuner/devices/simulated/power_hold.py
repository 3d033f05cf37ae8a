"""A load above the power limit of a modelled GPU: a while over it, then at a lower clock.

A power limit is held by a controller that looks at mean power, so that a load gets what it asks for until the
clock is lowered, some 100 ms on an H200. Short windows see more watts than the limit, and other joules than
long ones.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from tuner.devices.simulated.round_model import Round

_LEAST_ROUNDS, _LEAST_LONG_ROUNDS = 5, 3  # as on a real GPU
_LONG_ROUND_S = 0.1


@dataclass(frozen=True)
class RoundsAtClock:
    """Rounds at one clock.

    Attributes:
        times_s: time of each plan in a round.
        watts: mean power.
        clock_mhz: the SM clock.
        count: how many.
    """

    times_s: Sequence[float]
    watts: float
    clock_mhz: int
    count: int = 0

    @staticmethod
    def of(modelled: Round, draws: Sequence[float], noise: float) -> "RoundsAtClock":
        """A modelled round with the noise of its trial.

        Args:
            modelled: without noise.
            draws: standard normal numbers, one per plan, and the last for the power.
            noise: relative standard deviation.
        """
        times = [end * (1.0 + noise * draw) for end, draw in zip(modelled.ends_s, draws, strict=False)]
        return RoundsAtClock(times, modelled.watts * (1.0 + noise * draws[-1]), modelled.clock_mhz)

    @property
    def round_s(self) -> float:
        """Time of a round."""
        return max(self.times_s)

    def lasting(self, seconds: float, least: int = 0) -> "RoundsAtClock":
        """As many as take about so long."""
        count = max(least, round(seconds / self.round_s))
        return RoundsAtClock(self.times_s, self.watts, self.clock_mhz, count)

    @property
    def least(self) -> int:
        """Rounds that a window has at least."""
        return _LEAST_LONG_ROUNDS if self.round_s >= _LONG_ROUND_S else _LEAST_ROUNDS


def window_of(
    free: RoundsAtClock, held: RoundsAtClock, over_s: float, window_s: float
) -> tuple[RoundsAtClock, RoundsAtClock]:
    """The rounds of a window of about ``window_s`` seconds: those over the power limit, then the others.

    Args:
        free: a round at the clock that is set.
        held: a round at the clock that respects the limit.
        over_s: how long the load gets what it asks for, of the window.
        window_s: length of the window.
    """
    if over_s <= 0 or free.clock_mhz == held.clock_mhz:
        return free.lasting(0.0), held.lasting(window_s, held.least)
    first = free.lasting(min(over_s, window_s))
    left_s = window_s - first.count * first.round_s
    return first, held.lasting(max(0.0, left_s), max(0, held.least - first.count))
