"""When a search ends before its policy does."""

from dataclasses import dataclass


@dataclass(frozen=True)
class SearchLimits:
    """When a search ends although its policy would go on.

    Attributes:
        budget: trials measured at most; None for no limit.
        time_limit_s: seconds on the device's clock; None for no limit.
    """

    budget: int | None = None
    time_limit_s: float | None = None

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
            limit = f"the time limit of {self.time_limit_s:g} s is reached"
            raise LimitReachedError(limit, out_of_time=True)


class LimitReachedError(Exception):
    """A limit of the run is reached; ends its search.

    Attributes:
        out_of_time: True when the time limit was it, so that nothing more may be measured.
    """

    def __init__(self, message: str, *, out_of_time: bool = False) -> None:
        super().__init__(message)
        self.out_of_time = out_of_time
