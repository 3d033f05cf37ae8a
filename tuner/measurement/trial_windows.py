"""The windows of one trial: ended early, measured again, or longer at the power limit."""

import logging
import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace

from tuner.devices.base import Device
from tuner.measurement.base import Contest
from tuner.measurement.race import LOOKS_S, JouleBound, JouleBounds, Race, is_clearly_worse
from tuner.measurement.settle import FLAT, IdlePower, WarmUp
from tuner.measurement.window import WindowRunner, brief_window_s, suggested_window_s
from tuner.model.plan import Plan
from tuner.model.trial import SPOILING, Flag, FlagKind, Measurement, Trial
from tuner.power.base import Meter

# --- Longer windows at the power limit: until the joules of a round do not depend on the window any more.
#
# A GPU may be above its limit for some 100 ms, until its controller has lowered the clock, and then swings
# about the limit with a period of a second. A window of 0.8 s of an H200 showed 733 W under a limit of 700 W,
# and 94.7 mJ of a round; one of 4 s 89.6 mJ. Throttle reasons need not have been seen in the short one.

MOST_TIMES = 8.0
"""Times the usual window: no longer one is tried."""

LONGEST_S = 8.0
"""No longer window is tried."""


_LEAST_STEP = 1.5  # times the window before: two about as long tell nothing


class LimitedWindows:
    """Chooses the windows of trials at the power limit. A run learns which length was enough.

    Args:
        length_s: of a usual window.
        precision: wanted of joules.
    """

    def __init__(self, length_s: float, precision: float) -> None:
        self._most_s = max(length_s, min(MOST_TIMES * length_s, LONGEST_S))
        self._flat = max(FLAT, precision / 2.0)
        self._enough_s = length_s

    def lengthened(
        self,
        first: Measurement,
        measure: Callable[[float], Measurement],
        worse: Callable[[Measurement], bool],
    ) -> list[Measurement]:
        """Windows behind the first one of a trial at its power limit, each twice as long; the last counts.

        Two that agree within 0.5 %, or half of the wanted precision, end it. A window's own interval does
        not: it is wide because power changes in it. The second one may be half of what was enough before.

        Args:
            first: a window at the limit.
            measure: measures the trial in a window of so many seconds.
            worse: True for a trial whose joules are clearly too many, however much its windows differ.
        """
        windows = [first]
        length_s = max(first.window_s, self._enough_s / 4.0)
        change: float | None = None
        while _LEAST_STEP * length_s < self._most_s and not worse(windows[-1]):
            length_s = min(2.0 * length_s, self._most_s)
            windows.append(measure(length_s))
            change = self._change(*windows[-2:])
            if not change:
                break
        self._enough_s = length_s
        if change and _LEAST_STEP * length_s >= self._most_s:
            detail = f"energy still changed by {change:+.1%} in windows of {length_s:.2g} s"
            flags = (*windows[-1].flags, Flag(FlagKind.UNSETTLED, detail))
            windows[-1] = replace(windows[-1], flags=flags)
        return windows[1:]

    def _change(self, shorter: Measurement, longer: Measurement) -> float | None:
        """Relative change of joules; 0 where that is flat, None where there are none, or off the limit."""
        if shorter.energy is None or longer.energy is None or not is_limited(longer):
            return None
        change = longer.energy.joules / shorter.energy.joules - 1.0
        return 0.0 if abs(change) <= self._flat else change


def is_limited(measurement: Measurement) -> bool:
    """True for joules of a window in which mean power was at the limit, or above it."""
    return measurement.energy is not None and FlagKind.POWER_LIMIT in measurement.flag_kinds


_GIVE_UP = 3  # windows measured again in vain before what spoilt them counts as lasting
_LOG = logging.getLogger(__name__)


class SteadyWindows:
    """Runs windows, and once more those that were spoilt.

    Args:
        windows: runs them.
    """

    def __init__(self, windows: WindowRunner) -> None:
        self._windows = windows
        self._vain: Counter[FlagKind] = Counter()

    def run(self, trial: Trial, plans: Sequence[Plan], window_s: float, *, joules: bool) -> list[Measurement]:
        """A window, and another one where it was spoilt; the last one counts."""
        return self.settled(trial, lambda: [self._windows.run(plans, window_s, joules=joules)])

    def settled(self, trial: Trial, measure: Callable[[], list[Measurement]]) -> list[Measurement]:
        """Measure, and once more where the last window was spoilt, unless that was in vain several times."""
        windows = measure()
        spoilt = _to_repeat(windows[-1])
        if any(self._vain[kind] < _GIVE_UP for kind in spoilt):
            together = " | ".join(map(str, trial.configurations))
            _LOG.debug("measured again: %s: %s", together, "; ".join(map(str, windows[-1].flags)))
            windows += measure()
            self._vain.update(spoilt & windows[-1].spoilt)
        for kind in SPOILING - windows[-1].spoilt:
            self._vain[kind] = 0
        return windows


def _to_repeat(measurement: Measurement) -> frozenset[FlagKind]:
    """Return the flags that another window may clear."""
    return measurement.spoilt if measurement.energy is None else measurement.passing


_CAPPED_WINDOW_S = 1.5  # at its power limit an H200 swings between 500 and 800 W with a period of a second
_RAMP_S = 0.03  # of load before short windows: clocks and memory of an idle GPU take some ms to come up
_IDLE_S = 0.25  # so long may a GPU wait for the host and still be at its clocks


class TrialWindows:
    """Chooses the windows of trials, and runs them.

    Args:
        device: where they run.
        windows: runs one window.
        meter: for joules; None measures time only.
        idle: power of the idle GPU, as far as it was read; None without a meter.
        warm_up: see ``TrialMeasurer``, as for the others.
        window_s: length of every window; None for the sensor's own.
        precision: wanted of joules.
        thrifty: windows of a trial in a contest end once it is clearly worse.

    Attributes:
        length_s: of a full window.
    """

    def __init__(
        self,
        device: Device,
        windows: WindowRunner,
        meter: Meter | None,
        idle: IdlePower | None,
        warm_up: WarmUp | None,
        *,
        window_s: float | None,
        precision: float,
        thrifty: bool,
    ) -> None:
        self.length_s = window_s or suggested_window_s(None if meter is None else meter.info, precision)
        self._device = device
        self._windows = windows
        self._steady = SteadyWindows(windows)
        self._meter = meter
        self._idle = idle
        self._warm_up = warm_up
        self._obeyed = window_s is not None
        self._brief_s = self.length_s if meter is None else brief_window_s(meter.info)
        self._thrifty = thrifty
        self._limited = LimitedWindows(self.length_s, precision)
        self._race = Race()
        self._bounds = JouleBounds()
        self._capped = False
        self._busy_s = -math.inf  # when a window ended last

    def run(self, trial: Trial, plans: Sequence[Plan], contest: Contest | None) -> list[Measurement]:
        """All windows of a trial; the last one counts."""
        windows = self._chosen(trial, plans, contest)
        self._busy_s = self._device.now_s()
        self.learn(trial, windows[-1])
        return windows

    def learn(self, trial: Trial, measurement: Measurement) -> None:
        """Take in what a trial shows of power, one of a killed run too."""
        self._bounds.add(trial.setting, measurement)

    def take_over(self, ended_s: float) -> None:
        """A virtual GPU goes on from when a killed run's trial had ended, as if it had not idled."""
        self._busy_s = ended_s

    def _chosen(self, trial: Trial, plans: Sequence[Plan], contest: Contest | None) -> list[Measurement]:
        if not self._thrifty or (contest is None and self._meter is not None):
            return self._to_the_end(trial, plans)
        if contest is not None and self._meter is not None:
            return self._bounded(trial, plans, contest)
        ramp = self._ramp(plans)
        if any(not window.ok for window in ramp):
            return ramp  # what hangs is not waited for twice
        return self._to_the_end(trial, plans) if contest is None else self._raced(trial, plans, contest)

    def _ramp(self, plans: Sequence[Plan]) -> list[Measurement]:
        """A window that does not count, where the GPU has idled and short windows follow."""
        if self._device.now_s() - self._busy_s <= _IDLE_S:
            return []
        return [self._windows.run(plans, _RAMP_S, joules=False)]

    def _raced(self, trial: Trial, plans: Sequence[Plan], contest: Contest) -> list[Measurement]:
        """Windows for the time, longer and longer while the trial may be the best."""
        windows: list[Measurement] = []
        looks: list[Measurement] = []
        for look_s in LOOKS_S:
            if looks and look_s <= looks[-1].window_s:
                break  # rounds as long as that give no more in a longer window
            windows += self._steady.run(trial, plans, look_s, joules=False)
            if not windows[-1].ok:
                return windows
            looks.append(windows[-1])
            if self._race.lost(looks, contest) or not self._race.tells_more(looks, contest):
                break
        self._race.add(trial, looks)
        unsure_s = self._race.honest(windows[-1])
        windows[-1] = replace(windows[-1], makespan_uncertainty_s=unsure_s)
        return windows

    def _bounded(self, trial: Trial, plans: Sequence[Plan], contest: Contest) -> list[Measurement]:
        """Windows for joules, as long as the trial may be the best; none where its time rules it out.

        In a search for the fastest trial that one for joules follows, every trial takes a full window.
        """
        idle = None if self._idle is None else self._idle.of(trial.clock_mhz)
        if (
            contest.best is None
            or idle is None
            or self._settling(trial)
            or not contest.objective.needs_energy
        ):
            return self._to_the_end(trial, plans, contest)
        ramp = self._ramp(plans)  # from idle, its time would be too long, and the bound too high
        if any(not window.ok for window in ramp):
            return ramp
        windows = self._steady.run(trial, plans, LOOKS_S[0], joules=False)
        if not windows[-1].ok:
            return windows
        bound = self._bounds.rules_out(windows[-1], trial.setting, idle, contest)
        if bound is not None and not windows[-1].spoilt - contest.best[1].spoilt:
            windows[-1] = _estimated(windows[-1], bound)
            return windows
        if self._brief_s < self.length_s and not self._capped:  # at the power limit it would hardly tell
            windows += self._steady.run(trial, plans, self._brief_s, joules=True)
            brief = windows[-1]
            if not brief.ok or is_clearly_worse(brief, contest):
                return windows
        return windows + self._to_the_end(trial, plans, contest)

    def _settling(self, trial: Trial) -> bool:
        return self._warm_up is not None and self._warm_up.is_due(trial.setting)

    def _to_the_end(
        self, trial: Trial, plans: Sequence[Plan], contest: Contest | None = None
    ) -> list[Measurement]:
        """Windows of full length until power is settled."""

        def window() -> Measurement:
            return self._window(plans, contest)

        def settled() -> list[Measurement]:
            warm_up = self._warm_up
            return [window()] if warm_up is None else warm_up.settle(trial.setting, window)

        windows = self._steady.settled(trial, settled)
        if self._obeyed or not windows[-1].ok or not is_limited(windows[-1]):
            return windows

        def longer(length_s: float) -> Measurement:
            return self._windows.run(plans, length_s)

        def worse(measurement: Measurement) -> bool:
            return contest is not None and is_clearly_worse(measurement, contest)

        return windows + self._limited.lengthened(windows[-1], longer, worse)

    def _window(self, plans: Sequence[Plan], contest: Contest | None) -> Measurement:
        """One window, a longer one for joules of a contender while the GPU is at its power limit."""
        longer = self._capped and contest is None and self._meter is not None and not self._obeyed
        length_s = max(self.length_s, _CAPPED_WINDOW_S) if longer else self.length_s
        measurement = self._windows.run(plans, length_s)
        self._capped = measurement.at_power_limit
        return measurement


def _estimated(measurement: Measurement, bound: JouleBound) -> Measurement:
    """A measurement that has joules only for whoever searches."""
    sure = "idle power alone" if bound.certain else "the lowest net energy so far"
    flag = Flag(FlagKind.ESTIMATED, f"no joules measured: at least {bound.least_j:.4g} J by {sure}")
    return replace(
        measurement,
        estimated_j=bound.estimate_j,
        energy_total_j=bound.estimate_j * measurement.rounds,
        flags=(*measurement.flags, flag),
    )
