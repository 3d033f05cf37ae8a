"""When a search ends before its policy does."""

import math
import time
from dataclasses import dataclass, field


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends although its policy would go on.

    Attributes:
        budget: trials measured at most; None for no limit.
        time_limit_s: seconds at most, of the device's clock and of this machine's; None for no limit.
        begun_s: when that time began, as ``time.monotonic`` has it.
    """

    budget: int | None = None
    time_limit_s: float | None = None
    begun_s: float = field(default_factory=time.monotonic)

    @property
    def ends_s(self) -> float:
        """The end of the time on this machine's clock: a simulated device's stands while others compile."""
        return math.inf if self.time_limit_s is None else self.begun_s + self.time_limit_s

    def check(self, trials: int, *, out_of_time: bool) -> None:
        """End the search where a limit is reached.

        Args:
            trials: measured so far.
            out_of_time: whether the time limit is reached.

        Raises:
            LimitReachedError: one is.
        """
        if self.budget is not None and trials >= self.budget:
            raise LimitReachedError(f"the budget of {self.budget} trials is used up")
        if out_of_time:
            raise self.time_is_over()
        self.check_time()

    def check_time(self) -> None:
        """End the search where the time has passed on this machine's clock.

        Raises:
            LimitReachedError: it has.
        """
        if time.monotonic() >= self.ends_s:
            raise self.time_is_over()

    def time_is_over(self) -> "LimitReachedError":
        """What ends a search whose time has passed."""
        limit = f"the time limit of {self.time_limit_s:g} s is reached"
        return LimitReachedError(limit, out_of_time=True)


class LimitReachedError(Exception):
    """A limit of the run is reached; ends its search.

    Attributes:
        out_of_time: True when the time limit was it, so that nothing more may be measured.
    """

    def __init__(self, message: str, *, out_of_time: bool = False) -> None:
        super().__init__(message)
        self.out_of_time = out_of_time
