"""Windows measured again where something spoilt them: a GPU held back, a clock not there, uneven rounds."""

import logging
from collections import Counter
from collections.abc import Callable, Sequence

from tuner.measurement.window import WindowRunner
from tuner.model.plan import Plan
from tuner.model.trial import SPOILING, FlagKind, Measurement, Trial

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
    """What another window is worth for."""
    return measurement.spoilt if measurement.energy is None else measurement.passing
