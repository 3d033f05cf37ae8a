"""How long measuring a whole space would take."""

from collections.abc import Sequence

from tuner.space.search_view import Search

FIRST = 6  # evaluations before there is an estimate; the first of all pays for what is made once, and is none
LATEST = 16  # evaluations that the estimate is of
STRETCH = 1.5  # a sweep that was begun goes on while it is estimated to take no longer than this many times


class SweepTime:
    """Whether a whole sweep is short, by what evaluations of this run took.

    The time of an evaluation is from the end of one to the end of the next: compiling, checking, measuring
    and the search itself. Only measured seconds count: those of a model or of a recording say nothing of how
    long a user waits. With a break-even a sweep is never short, as it need not pay.

    Args:
        search: its size, and whether its seconds are real.
        sweep_s: longest sweep, in s; 0 for none.
    """

    def __init__(self, search: Search, sweep_s: float) -> None:
        self._search = search
        self._sweep_s = 0.0 if search.label or search.payback is not None else sweep_s
        self._begun = False

    def fits(self, ended_s: Sequence[float]) -> bool:
        """Whether the space is swept from here; the user is told when that begins.

        Args:
            ended_s: when each evaluation had ended, in their order.
        """
        if self._sweep_s <= 0.0 or len(ended_s) < FIRST:
            return False
        latest = list(ended_s[1:])[-LATEST - 1 :]
        each_s = (latest[-1] - latest[0]) / (len(latest) - 1)
        whole_s = each_s * self._search.size
        begins = 0.0 < whole_s <= self._sweep_s
        if begins and not self._begun:
            self._search.tell(
                f"bayesian: all {self._search.size:,} trials are measured, the most promising first:"
                f" {whole_s:.1f} s at {1e3 * each_s:.0f} ms each"
            )
        self._begun = begins or (self._begun and 0.0 < whole_s <= STRETCH * self._sweep_s)
        return self._begun
