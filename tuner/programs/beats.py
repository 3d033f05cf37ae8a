"""Beats: steps that a program does not mark, found in the power that its GPU draws, and followed."""

import math
import statistics
from bisect import bisect_left
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import NoReturn

import numpy as np
import numpy.typing as npt

from tuner.devices.sensors import is_of_host
from tuner.joules.traces import SensorChannel
from tuner.model.errors import InputError
from tuner.model.objective import COVERAGE
from tuner.model.trial import GpuSetting
from tuner.model.units import si, with_uncertainty
from tuner.power.base import SensorInfo
from tuner.search.option_checks import LimitReachedError

Array = npt.NDArray[np.float64]

BEAT, LOST = "beat", "no beat"
"""The phase of a program that marks none, and the label that says that its power does not repeat."""

GIVE_UP_S = 300.0
"""Time without a beat after which none is looked for any more."""

# --- The period with which power repeats.

_UPDATES = 4.0  # of the sensor, that a beat takes at least
_STRETCHES_S = (10.0, 20.0, 40.0, 80.0)  # each looked at with the one before it
_BEATS = 8.0  # in a stretch at least
_CHANCE = 1e-4  # that noise has a line anywhere in a spectrum
_NEAR = 80  # bins of a spectrum, half as many numbers, that tell the noise there
_FINER = 4  # lags for each sample
_HIGH, _FIRST = 0.5, 0.85  # an autocorrelation that is one, and that is as high as the highest
_APART = 0.05  # that periods of two stretches may look before their beats are counted
_SIGMAS, _SAME = 3.0, 0.002  # by which they may differ then: of their uncertainty, and of themselves
_EVEN = 0.15  # scatter of beats, relative: what differs more is no beat


def periods(
    times_s: Array, watts: Array, longest_s: float, chance: float | None = _CHANCE
) -> list[tuple[float, float]]:
    """Periods with which power may repeat, shortest first, and the autocorrelation there.

    Bins of a spectrum are above their neighbours by chance as exponential numbers are. A line is so by more
    than that in the spectrum of power, which is even for white noise, and in that of its differences, which
    is so for red noise. The autocorrelation is that of the lines alone, and has its maxima at the fundamental
    and its multiples.

    Args:
        times_s: of samples, shape (n,).
        watts: of them, shape (n,).
        longest_s: period of interest.
        chance: that noise has a line; None takes all of the spectrum for lines.
    """
    step_s = float(np.median(np.diff(times_s)))
    even = np.interp(np.arange(times_s[0], times_s[-1], step_s), times_s, watts)
    size = len(even)
    taper = np.hanning(size)
    power = np.abs(np.fft.rfft((even - even.mean()) * taper, 2 * size)) ** 2
    bins = np.arange(len(power))
    lines = bins > 2 * size * step_s / (1.5 * longest_s)
    if chance is not None:
        near = min(_NEAR, len(bins))
        blocks = len(bins) // near * near
        for each in (power, power * np.sin(np.pi * bins / (2 * size)) ** 2):
            usual, at = (np.median(some[:blocks].reshape(-1, near), axis=1) for some in (each, bins))
            lines &= each > np.interp(bins, at, usual) / math.log(2.0) * math.log(len(bins) / chance)
    of_lines, of_taper = (
        np.fft.irfft(spectrum, 2 * size * _FINER)[: size * _FINER // 2]
        for spectrum in (power * lines, np.abs(np.fft.rfft(taper, 2 * size)) ** 2)
    )
    if of_lines[0] <= 0.0:
        return []
    like = of_lines / of_taper * (of_taper[0] / of_lines[0])
    inner = like[1:-1]
    highest = 1 + np.flatnonzero((inner >= like[:-2]) & (inner > like[2:]) & (inner >= _HIGH))
    lag_s = step_s / _FINER
    return [(lag * lag_s, float(like[lag])) for lag in highest if lag * lag_s <= longest_s]


def _fundamental(times_s: Array, watts: Array) -> float | None:
    """The period of a stretch, roughly; None where power does not repeat more than noise does."""
    longest_s = (times_s[-1] - times_s[0]) / _BEATS
    found = periods(times_s, watts, 2.0 * longest_s)  # half of a beat that is longer is none
    best = max((like for _, like in found), default=0.0)
    first_s = next((period_s for period_s, like in found if like >= _FIRST * best), math.inf)
    return first_s if first_s <= longest_s else None


# --- Each beat, by the shape of power in it.

_POINTS = 32  # of a shape
_OFFSETS = np.linspace(-0.25, 0.25, 33)  # of a beat from where it was expected
_LIKE, _LEAST = 0.5, 0.4  # correlation with the shape, and its height, below which it is no beat
_GAIN = 0.2  # of the period, by the offset of a beat
_LEARNT = 4  # beats that tell the first shape
_DATED = 0.25  # of an update, that a beat may be dated wrong
_TINY = 1e-30  # that a power that does not change is divided by
_PLACES = (np.arange(_POINTS) + 0.5) / _POINTS - 0.5


@dataclass
class _Follower:
    """Follower of beats, one after the other.

    Attributes:
        period_s: of late.
        middle_s: of the next beat, as it is expected.
        shape: of power in a beat, less its mean, shape (32,).
    """

    period_s: float
    middle_s: float
    shape: Array

    @classmethod
    def learnt(cls, times_s: Array, watts: Array, period_s: float) -> "_Follower":
        """One for what repeats roughly with a period, at its beginning."""
        first_s = times_s[0] + 0.75 * period_s
        follower = cls(period_s, first_s, np.empty(0))
        middles_s = first_s + period_s * np.arange(_LEARNT)
        for _ in range(2):  # what was followed by the first shape tells a better one
            shape = np.interp(middles_s[:, None] + period_s * _PLACES, times_s, watts).mean(axis=0)
            follower = cls(period_s, first_s, shape - shape.mean())
            middles_s = np.array([middle_s for middle_s, _ in follower.beats(times_s, watts)] or middles_s)
        return cls(period_s, first_s, follower.shape)

    def beats(self, times_s: Array, watts: Array) -> Iterator[tuple[float, bool]]:
        """Middle of each further beat that samples show, and whether it is one."""
        while self.middle_s + 0.75 * self.period_s <= times_s[-1]:
            at_s = self.middle_s + self.period_s * (_OFFSETS[:, None] + _PLACES)
            parts = np.interp(at_s, times_s, watts)
            parts -= parts.mean(axis=1, keepdims=True)
            along, square = parts @ self.shape, float(self.shape @ self.shape)
            like = along / np.sqrt(np.maximum(np.sum(parts**2, axis=1) * square, _TINY))
            best = int(np.argmax(like))
            inside = 0 < best < len(like) - 1
            bent = 2.0 * like[best] - like[best - 1] - like[best + 1] if inside else 0.0
            between = 0.5 * (like[best + 1] - like[best - 1]) / bent if bent > 0.0 else 0.0
            offset = float(_OFFSETS[best] + between * (_OFFSETS[1] - _OFFSETS[0]))
            is_beat = inside and like[best] >= _LIKE and along[best] >= _LEAST * square
            if is_beat:
                self.middle_s += offset * self.period_s
                self.period_s *= 1.0 + _GAIN * offset
            yield self.middle_s, is_beat
            self.middle_s += self.period_s

    def likeness(self, other: "_Follower") -> float:
        """Correlation of two shapes, wherever their beats are taken to begin.

        What a clock changes may turn a shape upside down: then one part of a beat draws less than another
        that drew less before.
        """
        turned = np.fft.irfft(np.fft.rfft(self.shape) * np.conj(np.fft.rfft(other.shape)))
        return float(
            np.abs(turned).max() / (np.linalg.norm(self.shape) * np.linalg.norm(other.shape) + 1e-30)
        )


def found_beat(times_s: Array, watts: Array, least_s: float) -> tuple[float, float, _Follower] | None:
    """The beat of the latest samples, its standard uncertainty, and its follower; None for none.

    It is found in one stretch, and counts if the next one has it, too: the same within their uncertainties.

    Args:
        times_s: of samples, shape (n,).
        watts: of them, shape (n,).
        least_s: the shortest that the sensor lets be followed.

    Raises:
        InputError: there is a shorter one.
    """
    update_s = float(np.median(np.diff(times_s)))
    for stretch_s in _STRETCHES_S:
        middle, first = np.searchsorted(times_s, times_s[-1] - stretch_s * np.array([1.0, 2.0]))
        if times_s[-1] - times_s[0] < 2.0 * stretch_s:
            break
        parts = [(times_s[part], watts[part]) for part in (slice(first, middle), slice(middle, None))]
        rough = [_fundamental(*part) for part in parts if len(part[0]) > _POINTS]
        if len(rough) < len(parts) or rough[0] is None or rough[1] is None:
            continue
        if abs(rough[0] / rough[1] - 1.0) > _APART:
            continue
        if rough[1] < least_s:
            raise InputError(
                f"--phase {BEAT}: the power repeats every {si(rough[1], 's')}, and no beat below"
                f" {si(least_s, 's')} can be followed, as the sensor shows power every {si(update_s, 's')}"
            )
        means_s, sigmas_s = [], []
        for part in parts:
            follower = _Follower.learnt(*part, rough[1])
            beats = list(follower.beats(*part))
            each_s = np.diff([middle_s for middle_s, _ in beats])
            if len(each_s) < _BEATS / 2 or not all(is_beat for _, is_beat in beats):
                break
            means_s.append(float(each_s.mean()))
            dated_s = _DATED * update_s / len(each_s)
            sigmas_s.append(math.hypot(float(each_s.std()) / math.sqrt(len(each_s)), dated_s))
            if each_s.std() > _EVEN * each_s.mean():
                break
        else:
            apart_s = abs(means_s[0] - means_s[1])
            if apart_s <= _SIGMAS * math.hypot(*sigmas_s) + _SAME * means_s[1]:
                return statistics.fmean(means_s), math.hypot(*sigmas_s) / 2.0, follower
    return None


# --- The marks of a run.

_LOOK_S = 5.0  # between two looks for a beat that is not known
_SEEN = 5.0  # beats, of which a shape is learnt
_FASTER, _SLOWER = 0.95, 1.05  # than a setting may make a beat
_ALIKE, _ALIKE_AT_LAST = 0.8, 0.6  # shapes of a beat at two settings
_MISSED = 4  # beats in a row: it is lost
_CHANGED, _MOST_CHANGES = 0.05, 3  # of a beat: it is another; so often it is none
_WELL = 0.01  # of the beats of a window, that its ends may be dated wrong


def shows_beats(info: SensorInfo) -> bool:
    """True for a reading of a GPU's power: a counter is read too seldom."""
    return info.kind != "counter" and not is_of_host(info)


def check_readings(phase: str, infos: Sequence[SensorInfo]) -> None:
    """Refuse to look for a beat where nothing shows one.

    Raises:
        InputError: no reading does.
    """
    if phase == BEAT and not any(map(shows_beats, infos)):
        raise InputError(f"--phase {BEAT}: no reading shows the power of a GPU; mark steps, and name them")


class Beats:
    """Steps of a run that its power shows, in place of the marks of the program.

    Args:
        channel: of the power that shows them.
        tell: takes a sentence for the user.

    Attributes:
        comes_and_goes: the longest row of beats counts where they do.
        slower: times that a beat takes at most, at the setting that is held, of the default's.
        lost: True once there has been none for long.
    """

    comes_and_goes = True

    def __init__(self, channel: SensorChannel, tell: Callable[[str], None]) -> None:
        self._channel, self._tell = channel, tell
        self._default: GpuSetting | None = None  # that of the first window
        self._usual: _Follower | None = None  # of beats at the default
        self._now: _Follower | None = None  # of those at the setting that is held
        self._since_s, self.slower, self._changes, self.lost = -math.inf, 1.0, 0, False
        self._seen_s, self._missed = math.nan, 0  # the last beat, and how many after it were none
        self._due_s = 0.0  # the next look for one that is not known

    @property
    def missed(self) -> str:
        """Words for a program that has ended without a beat."""
        return "" if self._usual is not None else ", and no beat was found"

    @property
    def dated_s(self) -> float:
        """Standard uncertainty of the beginning of a beat, by which it may differ from what is seen of it."""
        return _DATED * self._channel.info.period_s

    @property
    def least(self) -> int:
        """Beats of a window at least, which are as long as they seem to within a hundredth."""
        if self._usual is None:
            return 1
        return math.ceil(math.sqrt(2.0) * self.dated_s / (_WELL * self._usual.period_s))

    def begin(self, since_s: float, setting: GpuSetting) -> None:
        """Mark beats from a time on, at a setting; the first one is the default's."""
        if self.slower <= 1.0:
            self._usual = self._now or self._usual
        self._default = self._default or setting
        self.slower = most_slower(self._default, setting)
        self._since_s, self._now, self._due_s, self._missed = since_s, None, 0.0, 0

    def note(self, marks: Sequence[tuple[float, str]]) -> None:
        """See ``Marks``: what the program marks is no beat."""

    def marks(self, noted: Sequence[tuple[float, str]], now_s: float) -> Sequence[tuple[float, str]]:
        """Beginnings of beats that samples have shown since the last call; ``LOST`` where there is none.

        Raises:
            InputError: no beat was found, or one that the sensor does not resolve.
            LimitReachedError: there is none any more.
        """
        del noted  # the program's
        self._channel.poll()
        samples, info = self._channel.samples, self._channel.info
        if math.isnan(self._seen_s):
            self._seen_s = now_s
        if now_s - self._seen_s > GIVE_UP_S:
            lasting = f"in {GIVE_UP_S / 60.0:g} minutes"
            if self._usual is None:
                raise InputError(
                    f"--phase {BEAT}: what {info.name} shows has not repeated {lasting}; mark steps by"
                    " tuner.phase(), and name them"
                )
            self._lose(f"no beat {lasting}")
        if self._now is None and now_s < self._due_s:
            return []
        late_s = info.response.delay_s + info.response.mean_age_s
        since_s = self._since_s if self._now is None else self._now.middle_s - self._now.period_s
        fresh = samples[bisect_left(samples, since_s + late_s, key=lambda sample: sample.time_s) :]
        if len(fresh) <= _POINTS // 4:
            return []
        times_s = np.array([sample.time_s for sample in fresh]) - late_s
        watts = np.array([sample.value for sample in fresh])
        if self._now is None and not self._learn(times_s, watts):
            return []
        marks: list[tuple[float, str]] = []
        for middle_s, is_beat in self._now.beats(times_s, watts) if self._now is not None else ():
            marks.append((middle_s, BEAT if is_beat else LOST))
            self._missed = 0 if is_beat else self._missed + 1
            if is_beat:
                self._seen_s = middle_s
            if self._missed == _MISSED:
                self._now, self._since_s, self._missed = None, middle_s, 0
                break
        return marks

    def _learn(self, times_s: Array, watts: Array) -> bool:
        """Learn what beats look like at the setting that is held; True where that is known."""
        if self._usual is None:
            return self._find(times_s, watts)
        usual_s = self._usual.period_s
        longest_s = _SLOWER * self.slower * usual_s
        latest = slice(int(np.searchsorted(times_s, times_s[-1] - _SEEN * longest_s - usual_s)), None)
        seen_s, at_last = float(times_s[-1] - times_s[latest][0]), latest.start > 0
        self._due_s = times_s[-1] + usual_s * (2.0 if at_last else 0.5)
        if seen_s < _SEEN * _SLOWER * usual_s:
            return False
        found = [
            _Follower.learnt(times_s[latest], watts[latest], period_s)
            for period_s, _ in periods(times_s[latest], watts[latest], min(longest_s, seen_s / _SEEN), None)
            if period_s >= _FASTER * usual_s
        ]
        best = max(found, key=self._usual.likeness, default=None)
        alike = _ALIKE if not at_last else _ALIKE_AT_LAST if len(found) > 1 else 0.0
        if best is not None and self._usual.likeness(best) >= alike:
            self._now = best
            return True
        return at_last and self.slower <= 1.0 and self._find(times_s, watts)  # else it may be the clock

    def _find(self, times_s: Array, watts: Array) -> bool:
        """Look for a beat that is not known."""
        self._due_s = times_s[-1] + _LOOK_S
        info = self._channel.info
        found = found_beat(times_s, watts, max(_UPDATES * info.period_s, info.response.window_s))
        if found is None:
            return False
        period_s, sigma_s, self._now = found
        told = f"the power repeats every {with_uncertainty(period_s, COVERAGE * sigma_s, 's')}"
        if self._usual is None:
            self._tell(f"{told}: a beat, by which time and joules are counted")
        elif abs(period_s / self._usual.period_s - 1.0) > _CHANGED:
            self._tell(f"{told} now, and no more every {si(self._usual.period_s, 's')}")
            self._changes += 1
            if self._changes == _MOST_CHANGES:
                self._lose("the beat changes again and again")
        self._usual = self._now
        return True

    def _lose(self, why: str) -> NoReturn:
        self._tell(f"beware: {why}: the program goes on at its usual clock")
        self.lost = True
        raise LimitReachedError("its beat is lost")


def most_slower(usual: GpuSetting, setting: GpuSetting) -> float:
    """Times that a step may take at a setting: as the clock falls, or the square of the power limit."""
    slower = (usual.clock_mhz or 1) / (setting.clock_mhz or usual.clock_mhz or 1)
    return slower * ((usual.power_limit_w or 1) / (setting.power_limit_w or usual.power_limit_w or 1)) ** 2
