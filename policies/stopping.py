"""Rules that end a Bayesian search: no more gain, or no payback."""

import math
from collections import deque
from collections.abc import Sequence
from typing import TYPE_CHECKING

from tuner.model.objective import GAIN
from tuner.model.trial import Measurement, Status, Trial
from tuner.space.search_view import Payback, Search

from .descent import Answer, Attempt, cheapest, relayed

if TYPE_CHECKING:  # searches without a surrogate end by these rules, too
    from .surrogate.learner import SearchRun
    from .surrogate.outlook import Proposal

# --- Break-even: ends a search when another evaluation costs more than its expected saving.

LEAST_TRIALS = 5  # valid trials before anything is expected: fewer tell nothing of how costs scatter
TREND = 5  # evaluations whose gains are the trend, as many as a Bayesian search waits for progress
GAPS = 5  # lowest gaps between costs that are averaged


def paying(attempt: Attempt, search: Search) -> Attempt:
    """Run a part of a search as long as it pays; without ``search.payback`` it runs to its end.

    A trial is asked for at a time, or as many as are measured at once, so that none is measured that does not
    pay. When the search has been stopped, that is told, and its answer is the cheapest trial measured.
    """
    if search.payback is None:
        return (yield from attempt)
    prospects, measured = Prospects(search.payback), dict[Trial, Measurement]()

    def answer(batch: list[Trial]) -> Answer:
        measurements: list[Measurement] = []
        while len(measurements) < len(batch):
            if not prospects.pays:
                raise _NotPayingError
            part = batch[len(measurements) :][: search.parallel]
            measurements += yield part
            for trial, measurement in zip(part, measurements[-len(part) :], strict=True):
                if measurement.status is not Status.PRUNED:
                    measured[trial] = measurement
                    prospects.add(search.cost(measurement), measurement)
        return measurements

    try:
        return (yield from relayed(attempt, answer))
    except _NotPayingError:
        search.tell(f"done: {prospects.verdict}")
        return cheapest(search, measured)


class _NotPayingError(Exception):
    """Another evaluation does not pay."""


class Prospects:
    """The expected saving and the cost of another evaluation.

    The expected gain of an evaluation, per run of the answer, is the larger of two estimates:

    * By chance: the last of n + 1 exchangeable draws is the lowest with probability 1 / (n + 1), and then it
      gained the gap to the second lowest, for which the mean of the lowest `GAPS` gaps stands.
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
        self._costs = sorted([*self._costs, cost])[: max(GAPS + 1, LEAST_TRIALS)]

    @property
    def expected_gain(self) -> float:
        """Expected gain of another evaluation, in the unit of the cost per run; infinite at first."""
        if len(self._costs) < LEAST_TRIALS:
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
        """Reason why the search stopped, for the user."""
        return not_paying(
            self.expected_gain * self._payback.runs,
            self._spent / self._evaluations,
            self._payback.runs,
        )


def not_paying(saving: float, price: float, runs: float) -> str:
    """Return the reason why a search stopped, for the user, with saving over price, which needs no unit.

    Args:
        saving: expected of another one in all runs, in the unit of the cost (seconds, or joules).
        price: what one takes, in the same unit.
        runs: rounds the answer will be used for.
    """
    used = f"{runs:,.0f}" if runs >= 1 else f"{runs:.2g}"
    expected = f"{100 * saving / price:.2g} % of what it costs" if saving > 0 else "nothing"
    return f"another trial is expected to save {expected} over {used} run{'' if used == '1' else 's'}"


BELIEVED = 0.01  # of that: predictions below it are believed; docs/lab says how often they err
SHARE = 0.3  # of the evaluations, which must have gained less, too: predictions alone err too often
LONG = 0.6  # of the evaluations in vain, after which what no tunable explains is hoped for no more
SHARE_AT_ONCE = 2 / 3  # where several are measured at once: each is chosen knowing less
REST = 1 / 2  # of what is left, if that is fewer
LEAST_EVALUATIONS = 8  # evaluations that must have gained less, however few there were
ROOTS = 1.25  # measurements before an end, by the root of the space's size,
ENOUGH = 80  # and at most so many
FLAT = 32  # and at most so many where all costs tie: of random 32, no recorded space's do
TIE = GAIN / 2  # of their mean: costs that deviate by no more, or than a measurement is unsure, tie
ALL_FAIL = 100  # evaluations after which a search without a valid trial ends


class StopRule:
    """Ends a search: no valid trial, evaluations that do not pay, too little left to gain, or no patience.

    Too little is less than `GAIN`, by prediction and by experience.

    *Prediction*: the surrogate's expected gain of measuring all that is left. It errs where a space is
    rougher than what was seen of it, so it has to be `BELIEVED` times as low. *Experience*: what the latest
    `SHARE` of the evaluations gained. Both are asked once the space is known a little. A gain within the
    uncertainty of measurements is none. docs/lab/methodologies.md says what the constants were chosen on.

    Args:
        run: the search, after its start design.
        patience: evaluations in a row without progress that end the search instead of prediction and
            experience; infinity never does. None for these.
    """

    def __init__(self, run: "SearchRun", patience: float | None) -> None:
        self._run, self._patience = run, patience
        self._start = len(run.lowest)

    def now(self) -> bool:
        """Return True if the search ends here, and tell the user the reason."""
        run = self._run
        if run.learner.lowest < math.inf:
            return self._is_enough() if self._patience is None else self._is_quiet(self._patience)
        if run.evaluations < ALL_FAIL:
            return False
        run.search.tell(f"done: all {run.evaluations} trials failed")
        return True

    def paying(self, proposals: Sequence["Proposal"]) -> list["Proposal"]:
        """Return the proposals that pay among those to measure next; none if the search ends.

        Neighbours of a good trial are measured whatever they promise. The others stand in the order of their
        promise: the first of them that does not pay is the last that is looked at, and the search ends where
        that is the first of all; the user is told why.
        """
        payback, run = self._run.search.payback, self._run
        if payback is None or run.learner.lowest == math.inf:
            return list(proposals)
        price = run.spent / len(run.learner.measured)
        paid: list[Proposal] = []
        for proposal in proposals:
            saving = proposal.gain * run.learner.lowest * payback.runs
            if proposal.near or saving >= price:
                paid.append(proposal)
                continue
            if all(neighbour.near for neighbour in paid):
                why = not_paying(saving, price, payback.runs)
                run.search.tell(f"done: {why}")
                return []
            break
        return paid

    def _is_quiet(self, patience: float) -> bool:
        """Return True if the latest evaluations after the start, as many as patience says, gained nothing."""
        run = self._run
        if len(run.lowest) - self._start < patience:
            return False
        before = run.lowest[-1 - int(patience)]
        if run.lowest[-1] < before * (1 - max(GAIN, run.noise)):
            return False
        run.search.tell(f"done: the last {patience:g} trials brought no progress")
        return True

    def _is_enough(self) -> bool:
        run = self._run
        least = max(GAIN, run.noise)
        count = len(run.lowest)
        share = SHARE if run.search.parallel == 1 else SHARE_AT_ONCE
        latest = max(LEAST_EVALUATIONS, math.ceil(min(share * count, REST * (run.joint.size - count))))
        before = count - latest
        if before < 1 or run.evaluations < LEAST_EVALUATIONS or count < self._looked_around():
            return False
        earlier, lowest = run.lowest[before - 1], run.lowest[-1]
        if lowest < earlier * (1 - least):
            return False
        outlook = run.learner.outlook()
        if outlook is None:
            return False
        long_ago = run.lowest[count - 1 - math.ceil(LONG * count)]
        expected = outlook.expected_gain(unexplained=lowest < long_ago * (1 - least))
        if expected >= BELIEVED * least:
            return False
        little = f"less than {100 * GAIN:.2g} %" if least == GAIN else "less than can be measured"
        run.search.tell(f"done: the rest is expected to gain {little}")
        run.search.tell(
            f"bayesian: the rest is predicted to gain {100 * expected:.2f} %, and the last"
            f" {latest} trials gained {100 * (1 - lowest / earlier) if earlier else 0.0:.1f} %"
            f"{run.search.suffix}"
        )
        return True

    def _looked_around(self) -> float:
        """Measurements after which the space is known a little."""
        run, joint = self._run, self._run.joint
        ties = run.learner.scatter <= max(TIE, run.noise)
        enough = min(ROOTS * math.sqrt(joint.size), FLAT if ties else ENOUGH)
        several = len(run.search.workloads) > 1
        return min(enough, sum(count for count in joint.shape if count > 1)) if several else enough
