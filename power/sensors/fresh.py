"""Fresh samples out of looks at a value that stands until it is updated, and that may honestly repeat.

A look that finds the old value has two reasons: the sensor was not updated, and then it is no sample, or it
was and power did not move by as much as one step, and then leaving it out would bias the mean. The sensor's
period tells them apart: after so long an update is due, whatever its value. Where the period is not known it
is taken from the changes, of which at least every eighth follows its predecessor at the next update.
"""

from collections import deque

from tuner.interfaces import Sample

_SLACK = 0.25  # of a period: a look before the next update, by its uncertain time, proves nothing
_TORN = 0.5  # of a period: two numbers of one update may be seen one by one, no two updates come so near
_JITTER = 0.02  # of a period: an update that was not seen to happen may be off by so much
_GAPS = 64  # gaps between changes that a period is learnt from
_ENOUGH = 8  # of fewer nothing is learnt, and the shortest of so many is the period
_SQRT_12 = 12.0**0.5


class Freshness:
    """Tells updates of a value from repeats, and dates them.

    A change happened between the look that saw it and the one before. An update that changed nothing is dated
    a period after the last. The sample carries the standard uncertainty of that.

    Args:
        period_s: time between updates in seconds; where ``learn``, what is assumed of it.
        learn: take the period from the changes once there are enough.
    """

    def __init__(self, period_s: float, *, learn: bool = False) -> None:
        self.period_s = period_s
        self._learn = learn
        self._gaps_s: deque[float] = deque(maxlen=_GAPS)
        self._value: float | None = None
        self._seen_s = 0.0  # the last look
        self._updated_s = 0.0  # the last update
        self._sigma_s = 0.0  # of its time
        self._changed_s: float | None = None  # the last change

    def look(self, time_s: float, value: float) -> Sample | None:
        """Take in one look; the sample it is, or None for a repeat.

        The first look is none: nobody knows how old its value is. Time that goes backwards begins anew.
        """
        since_s, self._seen_s = self._seen_s, time_s
        before, self._value = self._value, value
        if before is None or time_s < since_s:
            self._updated_s = time_s
            self._sigma_s = self.period_s / _SQRT_12
            self._changed_s = None
            return None
        if value != before:
            return self._change(since_s, time_s, value)
        if time_s - self._updated_s < (1.0 + _SLACK) * self.period_s:
            return None
        return self._repeat(time_s, value)

    def _change(self, since_s: float, time_s: float, value: float) -> Sample | None:
        earliest_s = max(since_s, time_s - self.period_s)
        middle_s = (earliest_s + time_s) / 2.0
        gap_s = middle_s - self._changed_s if self._changed_s is not None else 0.0
        if not self._learn and self._changed_s is not None and gap_s < _TORN * self.period_s:
            return None
        if gap_s > 0:
            self._gaps_s.append(gap_s)
        self._changed_s = middle_s
        if self._learn and len(self._gaps_s) >= _ENOUGH:
            self.period_s = sorted(self._gaps_s)[len(self._gaps_s) // _ENOUGH]
        return self._sample(middle_s, value, (time_s - earliest_s) / _SQRT_12)

    def _repeat(self, time_s: float, value: float) -> Sample:
        due_s = self._updated_s + self.period_s
        unknown_s = self.period_s / _SQRT_12
        if time_s - due_s > self.period_s:  # at least one more was not looked at
            return self._sample(time_s - self.period_s / 2.0, value, unknown_s)
        jitter_s = _JITTER * self.period_s
        return self._sample(due_s, value, min((self._sigma_s**2 + jitter_s**2) ** 0.5, unknown_s))

    def _sample(self, time_s: float, value: float, sigma_s: float) -> Sample:
        self._updated_s, self._sigma_s = time_s, sigma_s
        return Sample(time_s, value, sigma_s)
