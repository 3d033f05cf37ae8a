"""Settled power and held settings: warm-up, idle power, clock and power limit of trials.

A GPU that was idle, or had another clock, spends other joules for some seconds. Joules of a round are
watched, not power: a GPU at its power limit gets slower as it warms up. What takes minutes is not waited for:
the default trial is measured again at the end, in turn with the contenders, and every interval of joules
holds what is left of the drift (``paired.window_scatter``).
"""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from typing import NamedTuple

from tuner.devices.base import Device
from tuner.model.errors import ClockError, ClockLostError, PowerError
from tuner.model.objective import COVERAGE
from tuner.model.plan import Plan
from tuner.model.trial import Flag, FlagKind, GpuSetting, Measurement
from tuner.power.base import (
    CLOCKS,
    POWER_LIMITS,
    POWER_PROFILES,
    ClockControl,
    ClockReading,
    GpuSettingKind,
    Meter,
    PowerLevel,
    PowerLimitControl,
    PowerProfileControl,
    PowerReading,
    SettingControl,
)

SETTLE_S = 5.0
"""A clock that is not there by then is flagged; a lock takes milliseconds."""

_LOG = logging.getLogger(__name__)


class SettingLock:
    """Holds at most one clock, one power limit and one power profile; their controls stay the caller's.

    Args:
        clocks: sets clocks; None where there is nothing to set them with.
        limits: sets power limits; None where there is nothing to set them with.
        profiles: sets power profiles; None where there is nothing to set them with.
    """

    def __init__(
        self,
        clocks: ClockControl | None,
        limits: PowerLimitControl | None = None,
        profiles: PowerProfileControl | None = None,
    ) -> None:
        self._clocks, self._limits, self._profiles = clocks, limits, profiles
        self._controls: dict[str, tuple[SettingControl | None, GpuSettingKind]] = {
            "clock_mhz": (clocks, CLOCKS),
            "power_limit_w": (limits, POWER_LIMITS),
            "power_profile": (profiles, POWER_PROFILES),
        }
        self._locks = {name: ExitStack() for name in self._controls}
        self._settled = True
        self._held = GpuSetting()

    @property
    def mhz(self) -> int | None:
        """The clock that is held; None for none."""
        return self._held.clock_mhz

    @contextmanager
    def held(self, setting: GpuSetting) -> Iterator[None]:
        """Hold a clock, limit and profile, or none of them: in the block, and until others are asked for.

        An exception that passes through gives all back.

        Raises:
            ClockError: one could not be set, or the one before not be given back.
            ClockLostError: one is not held any more, and may not have been in the block.
        """
        try:
            for name in self._controls:
                if getattr(setting, name) != getattr(self._held, name):
                    self._hold(name, getattr(setting, name))
            yield
            if self._held.clock_mhz is not None:
                _confirm(self.read)
            if self._limits is not None and self._held.power_limit_w is not None:
                _confirm(self._limits.read_w)
            if self._profiles is not None:
                self._profiles.demand_held()
        except BaseException:
            self.release()
            raise

    def _hold(self, name: str, value: int | None) -> None:
        """Hold a value in place of the one before, or none."""
        control, kind = self._controls[name]
        self._held = replace(self._held, **{name: None})
        self._locks[name].close()
        if value is None:
            return
        if control is None:
            raise ClockError(
                f"a trial asks for a {kind.value} of {value} {kind.unit}, and the {kind.name} of this device"
                " cannot be set here"
            )
        self._locks[name].enter_context(control.locked(value))
        self._held = replace(self._held, **{name: value})
        self._settled = self._settled and kind is not CLOCKS

    def settle(self, look: Callable[[], ClockReading | None], now_s: Callable[[], float]) -> None:
        """After a clock was set, keep the GPU busy until it has it.

        A throttled GPU will not get there, and one that does not within five seconds is not waited for: what
        is measured then is flagged.

        Args:
            look: runs a load for a moment and says which clock it saw; None where the load failed.
            now_s: the device's time.
        """
        if self._settled:
            return
        self._settled = True
        begun_s = now_s()
        try:
            seen: ClockReading | None = self.read()
        except ClockError:
            return  # whoever reads the clock in the window that follows tells of it
        while seen is not None and self.is_off(seen) and not seen.throttle_reasons:
            if now_s() - begun_s > SETTLE_S:
                _LOG.warning("the clock is at %s MHz after %g s, %s MHz set", seen.mhz, SETTLE_S, self.mhz)
                return
            seen = look()

    def release(self) -> None:
        """Give all back."""
        self._held = GpuSetting()
        with ExitStack() as locks:
            for lock in reversed(self._locks.values()):
                locks.callback(lock.close)

    def read(self) -> ClockReading:
        """The present clock.

        Raises:
            ClockError: the GPU stopped answering.
        """
        return ClockReading(None) if self._clocks is None else self._clocks.read()

    def flags(self, seen: ClockReading) -> list[Flag]:
        """Return flags for throttling and for a clock off the set value in a window."""
        flags = []
        if seen.throttle_reasons:
            flags.append(Flag(FlagKind.THROTTLED, ", ".join(seen.throttle_reasons)))
        if self.is_off(seen):
            flags.append(Flag(FlagKind.OFF_CLOCK, f"{seen.mhz:g} MHz seen, {self.mhz} MHz set"))
        return flags

    def is_off(self, seen: ClockReading) -> bool:
        """True where a clock is held and the one seen is more than one supported step from it."""
        if self.mhz is None or seen.mhz is None:
            return False
        return abs(seen.mhz - self.mhz) > self._step_mhz(self.mhz)

    def _step_mhz(self, mhz: int) -> float:
        """Distance to the farther of the neighbouring supported clocks: what a median may be off."""
        supported = sorted(self._clocks.supported_mhz()) if self._clocks is not None else []
        if mhz not in supported:
            return 0.0
        index = supported.index(mhz)
        return max(abs(mhz - other) for other in supported[max(index - 1, 0) : index + 2])


def _confirm(read: Callable[[], object]) -> None:
    """Read what is held, only to hear that it is not any more."""
    try:
        read()
    except ClockLostError:
        raise
    except ClockError:  # a GPU that does not tell it: its windows have none either
        return


COLD_S = 6.0
"""Longest warm-up. What still changes after it takes minutes, and no window is long enough for that."""

NEW_CLOCK_S = 3.0
"""Longest wait at a new clock. The chip follows within seconds; what its heat sink does takes minutes."""

FLAT = 0.005
"""Windows that differ by no more are flat: trials do not repeat better over minutes.

An H200 rose by 1.5 % in seconds, then by 0.005 % a second.
"""

APART_S = 0.5  # windows that are held against each other; shorter ones would all look alike
_CALM_S = 0.3  # after work: power of an H200 has fallen within a tenth of a second


class _Level(NamedTuple):
    """Joules of a round in a window, with half of their 95 % interval."""

    ended_s: float
    joules: float
    half_j: float


class WarmUp:
    """Has windows of a trial repeated until its joules are flat, where they may not be; the last one counts.

    That is so before the first trial, and after the clock or the power limit has changed.

    Args:
        now_s: the device's time.
        on_window: hears of every window of the warm-up: its mean power in watts, and seconds since it began.

    Attributes:
        cold: True until a first trial was measured.
        notices: what the user should know.
    """

    def __init__(
        self, now_s: Callable[[], float], on_window: Callable[[float, float], None] | None = None
    ) -> None:
        self._now_s = now_s
        self._on_window = on_window
        self._setting = GpuSetting()
        self.cold = True
        self.notices: list[str] = []

    def is_due(self, setting: GpuSetting) -> bool:
        """True where power may not be settled at this clock and power limit."""
        return self.cold or setting != self._setting

    def take_over(self, setting: GpuSetting) -> None:
        """A virtual GPU goes on as warm as a killed run left it, at this clock and power limit."""
        self.cold, self._setting = False, setting

    def settle(self, setting: GpuSetting, measure: Callable[[], Measurement]) -> list[Measurement]:
        """Measure once, and again as long as joules are not flat and may yet become so.

        Args:
            setting: clock and power limit of the trial.
            measure: measures it in one window.

        Returns:
            All that was measured; a failed trial, and one without joules, is measured once.
        """
        if not self.is_due(setting):
            return [measure()]
        limit_s = COLD_S if self.cold else NEW_CLOCK_S
        begun_s = self._now_s()
        measured: list[Measurement] = []
        levels: list[_Level] = []
        change: float | None = None
        while change != 0.0 and (not levels or self._now_s() - begun_s < limit_s):
            measured.append(measure())
            energy = measured[-1].energy
            if energy is None:
                return measured
            levels.append(_Level(self._now_s(), energy.joules, COVERAGE * energy.uncertainty_j))
            change = _risen(levels)
            if self.cold and self._on_window is not None:
                self._on_window(energy.watts, self._now_s() - begun_s)
        if change:
            flag = Flag(FlagKind.UNSETTLED, f"energy still changed by {change:+.1%} after {limit_s:g} s")
            measured[-1] = replace(measured[-1], flags=(*measured[-1].flags, flag))
            if self.cold:
                self.notices.append(f"{flag} of warm-up: the trials measured first may be off by as much")
        self.cold, self._setting = False, setting
        return measured


def _risen(levels: list[_Level]) -> float | None:
    """Change of joules to the last window from one before it: 0 where that is flat, None without one."""
    last = levels[-1]
    before = next((level for level in reversed(levels) if last.ended_s - level.ended_s >= APART_S), None)
    if before is None:
        return None
    change_j = last.joules - before.joules
    larger_j = max(abs(last.joules), abs(before.joules))
    return change_j / larger_j if abs(change_j) > max(FLAT * larger_j, last.half_j + before.half_j) else 0.0


class IdlePower:
    """Idle power by clock, as read so far: usually once before the trials at a clock and once after them.

    Args:
        device: is left alone for the time of a reading.
        meter: reads.
    """

    def __init__(self, device: Device, meter: Meter) -> None:
        self._device = device
        self._meter = meter
        self._seen: dict[int | None, list[PowerLevel]] = {}

    def measure(self, clock_mhz: int | None, window_s: float) -> float:
        """Read idle power for so long at a clock that is set already; returns the joules that took."""
        with self._meter.recording() as recording:
            self._device.sleep(_CALM_S)
            start_s = self._device.now_s()
            self._device.sleep(window_s)
            end_s = self._device.now_s()
            self._device.sleep(max(0.0, self._meter.info.response.delay_s))  # negative where dated too early
        try:
            reading: PowerReading | None = recording.reading(start_s, end_s)
            why = recording.problem
        except PowerError as error:
            reading, why = None, str(error)
        if reading is None:
            _LOG.warning("no idle power: %s", why)
        else:
            self._seen.setdefault(clock_mhz, []).append(PowerLevel(reading.watts, reading.uncertainty_w))
        return recording.joules()

    def recall(self, clock_mhz: int | None, watts: float, uncertainty_w: float) -> None:
        """Take over what a killed run read, unless this one has."""
        self._seen.setdefault(clock_mhz, [PowerLevel(watts, uncertainty_w)])

    def of(self, clock_mhz: int | None) -> tuple[float, float] | None:
        """Watts and standard uncertainty at a clock; None where it was not read."""
        seen = self._seen.get(clock_mhz)
        if not seen:
            return None
        level = PowerLevel.between(seen)
        return level.watts, level.sigma_w


# --- Longer windows at the power limit: until the joules of a round do not depend on the window any more.
#
# A GPU may be above its limit for some 100 ms, until its controller has lowered the clock, and then swings
# about the limit with a period of a second. A window of 0.8 s of an H200 showed 733 W under a limit of 700 W,
# and 94.7 mJ of a round; one of 4 s 89.6 mJ. Throttle reasons need not have been seen in the short one.

MOST_TIMES = 8.0
"""Times the usual window: no longer one is tried."""

LONGEST_S = 8.0
"""No longer window is tried."""


_ABOUT = 0.9  # of the length that was asked for: windows end up to a tenth short
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
        self._of_trials: dict[object, float] = {}

    def learn(self, setting: GpuSetting, plans: Sequence[Plan], length_s: float) -> None:
        """Keep the length that was enough for plans at the power limit, for when they are measured again."""
        self._of_trials[_together(setting, plans)] = length_s

    def enough_s(self, setting: GpuSetting, plans: Sequence[Plan]) -> float | None:
        """The length that was enough for plans; None of those that were not seen at the power limit."""
        return self._of_trials.get(_together(setting, plans))

    @property
    def longest_s(self) -> float:
        """The longest that a trial of the run has needed; 0 while none was at the limit."""
        return max(self._of_trials.values(), default=0.0)

    def is_long(self, measurement: Measurement) -> bool:
        """True for a window as long as any trial of the run has needed."""
        return 0.0 < _ABOUT * self.longest_s <= measurement.window_s

    def lengthened(
        self,
        first: Measurement,
        measure: Callable[[float], Measurement],
        enough: Callable[[Measurement], bool],
    ) -> list[Measurement]:
        """Windows behind the first one of a trial at its power limit, each twice as long; the last counts.

        Two that agree within 0.5 %, or half of the wanted precision, end it. A window's own interval does
        not: it is wide because power changes in it. The second one may be half of what was enough before.

        Args:
            first: a window at the limit.
            measure: measures the trial in a window of so many seconds.
            enough: True for a window that no longer one need follow, however much windows differ: joules are
                clearly too many, or power is what others drew.
        """
        windows = [first]
        length_s = max(first.window_s, self._enough_s / 4.0)
        change: float | None = None
        while _LEAST_STEP * length_s < self._most_s and not enough(windows[-1]):
            length_s = min(2.0 * length_s, self._most_s)
            windows.append(measure(length_s))
            change = _change(*windows[-2:])
            if change is None or abs(change) <= self._flat:
                break
        self._enough_s = length_s
        if change is not None and abs(change) > self._flat and _LEAST_STEP * length_s >= self._most_s:
            detail = f"energy still changed by {change:+.1%} in windows of {length_s:.2g} s"
            flags = (*windows[-1].flags, Flag(FlagKind.UNSETTLED, detail))
            windows[-1] = replace(windows[-1], flags=flags)
        return windows[1:]

    def enough_of(self, windows: Sequence[Measurement]) -> float:
        """The length that would have been enough for a trial, by its windows, each twice as long.

        What is too much in the beginning of a window is a share of its joules that falls with its length: the
        last one has left of it as much as joules have changed by. A shorter one may have left what is flat.
        """
        before, last = windows[-2:] if len(windows) > 1 else (windows[-1], windows[-1])
        change = _change(before, last) if _LEAST_STEP * before.window_s <= last.window_s else None
        return last.window_s * (1.0 if change is None else min(1.0, max(0.5, abs(change) / self._flat)))


def _change(shorter: Measurement, longer: Measurement) -> float | None:
    """Relative change of joules; None where there are none, or off the limit."""
    if shorter.energy is None or longer.energy is None or not is_limited(longer):
        return None
    return longer.energy.joules / shorter.energy.joules - 1.0


def _together(setting: GpuSetting, plans: Sequence[Plan]) -> object:
    """A key of what runs, and at which clock and power limit."""
    return setting, tuple((plan.workload, plan.configuration) for plan in plans)


def is_limited(measurement: Measurement) -> bool:
    """True for joules of a window in which mean power was at the limit, or above it."""
    return measurement.energy is not None and FlagKind.POWER_LIMIT in measurement.flag_kinds
