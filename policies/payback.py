"""Break-even: ends a search when another evaluation costs more than its expected saving."""

import math
from collections import deque

from tuner.model.trial import Measurement, Status, Trial
from tuner.space.search_view import Payback, Search

from .descent import Attempt

LEAST = 5  # valid trials before anything is expected: fewer tell nothing of how costs scatter
TREND = 5  # evaluations whose gains are the trend, as many as a Bayesian search waits for progress
GAPS = 5  # lowest gaps between costs that are averaged


def paying(attempt: Attempt, search: Search) -> Attempt:
    """Run a part of a search as long as it pays; without ``search.payback`` it runs to its end.

    A trial is asked for at a time, or as many as are measured at once, so that none is measured that does not
    pay. When the search has been stopped, that is told.

    Returns:
        What the part returns; the cheapest trial measured where it was stopped.
    """
    if search.payback is None:
        return (yield from attempt)
    prospects = Prospects(search.payback)
    best, lowest = None, math.inf
    try:
        batch = next(attempt)
        while True:
            measurements: list[Measurement] = []
            while len(measurements) < len(batch):
                if not prospects.pays:
                    search.tell(f"break-even: {prospects.verdict}{search.suffix}")
                    return best
                asked = batch[len(measurements) :][: search.parallel]
                measurements += yield asked
                for trial, measurement in zip(asked, measurements[-len(asked) :], strict=True):
                    if measurement.status is Status.PRUNED:
                        continue
                    cost = search.cost(measurement)
                    prospects.add(cost, measurement)
                    if cost < lowest:
                        best, lowest = trial, cost
            batch = attempt.send(measurements)
    except StopIteration as end:
        found: Trial | None = end.value
        return found
    finally:
        attempt.close()


class Prospects:
    """The expected saving and the cost of another evaluation.

    The expected gain of an evaluation, per run of the answer, is the larger of two simple estimates:

    * What a further draw would gain if it were drawn like those before. Of n + 1 exchangeable draws, one is
      the last with probability 1 / (n + 1), and if it is the lowest, it gained the gap to the second lowest:
      so the expected gain is the gap between the two lowest costs, by the number of draws. The mean of the
      lowest `GAPS` gaps stands for that one gap, which is as good as chance.
    * The trend: the mean gain of the last `TREND` evaluations, for a search that is better than chance.

    Args:
        payback: how often the answer will be used, and what a measurement takes.
    """

    def __init__(self, payback: Payback) -> None:
        self._payback = payback
        self._costs: list[float] = []
        self._spent = 0.0
        self._evaluations = 0
        self._gains: deque[float] = deque(maxlen=TREND)

    def add(self, cost: float, measurement: Measurement) -> None:
        """Take note of an evaluation; one that failed gained nothing and took what it took."""
        self._evaluations += 1
        self._spent += self._payback.spent(measurement)
        if not math.isfinite(cost):
            self._gains.append(0.0)
            return
        self._gains.append(max(0.0, self._costs[0] - cost) if self._costs else 0.0)
        self._costs = sorted([*self._costs, cost])[: max(GAPS + 1, LEAST)]

    @property
    def expected_gain(self) -> float:
        """Expected gain of another evaluation, in the unit of the cost per run; infinite at first."""
        if len(self._costs) < LEAST:
            return math.inf
        lowest = self._costs[: GAPS + 1]
        by_chance = (lowest[-1] - lowest[0]) / (len(lowest) - 1) / self._evaluations
        return max(by_chance, sum(self._gains) / TREND)

    @property
    def pays(self) -> bool:
        """True while another evaluation is expected to save what it takes."""
        if not self._evaluations:
            return True
        return self.expected_gain * self._payback.runs > self._spent / self._evaluations

    @property
    def verdict(self) -> str:
        """Why the search stopped, for the user."""
        return not_paying(
            self._evaluations,
            self.expected_gain * self._payback.runs,
            self._spent / self._evaluations,
            self._payback.runs,
        )


def not_paying(evaluations: int, saving: float, price: float, runs: float) -> str:
    """Why a search stopped, for the user: saving and price as a ratio, which needs no unit.

    Args:
        evaluations: of the search.
        saving: expected of another one in all runs, in the unit of the cost (seconds, or joules).
        price: what one takes, in the same unit.
        runs: rounds the answer will be used for.
    """
    used = f"{runs:,.0f}" if runs >= 1 else f"{runs:.2g}"
    expected = f"{100 * saving / price:.2g} % of what it costs" if saving > 0 else "nothing"
    return (
        f"stopped after {evaluations} evaluations, because another one is expected to save {expected}"
        f" over {used} run{'' if used == '1' else 's'}"
    )
