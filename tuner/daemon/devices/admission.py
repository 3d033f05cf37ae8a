"""Whether a device may be tuned on now: windows, budgets, and the machine's own work.

When tuning is allowed: windows that a cron expression opens, in local time.
"""

import asyncio
import math
import os
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import NamedTuple, Protocol
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim

from tuner.daemon.devices.budgets import Budgets, exhausted, until_tomorrow_s
from tuner.daemon.settings.tables import Settings, WindowTable
from tuner.report.words import moment

_RECHECK_S = 60.0  # a wall clock that was set is noticed after so long
_LOOK_TIMEOUT_S = 10.0  # a look that takes longer: the driver hangs
_LOAD_LASTS_S = 2.0  # utilisation is a mean over the past: up to a second of it on discrete GPUs
_MISSED_LOOKS = 8.0  # looks left out, after which nobody knows whether the device was free

Wall = Callable[[], datetime]
_LOCALTIME = Path("/etc/localtime")
_TICK = timedelta(seconds=1)  # of cron expressions


class Presence(Protocol):
    """See ``tuner.daemon.attempts.gpu_users.Presence``."""

    @property
    def busy(self) -> bool:
        """Others compute there."""

    @property
    def why(self) -> str:
        """Who or what."""

    @property
    def figure(self) -> str:
        """How much of it, which is another with each look; empty where that is not measured."""


class Look(Protocol):
    """Looks whether others compute on a device (``tuner.daemon.attempts.gpu_users.Company.look``)."""

    async def __call__(self, device: str, ours: int, *, our_load: bool = False) -> Presence:
        """Look now; ``our_load``: its load is, or may still be, that of our own work."""


class Hold(NamedTuple):
    """What keeps a job from running.

    Attributes:
        reason: for people.
        again_s: when to ask again at the latest.
        tell: False for what passes by itself at once, and is no news.
        figure: what is another with each look, and no news either; empty where there is none.
    """

    reason: str
    again_s: float
    tell: bool = True
    figure: str = ""


class Gates:
    """The gates of one device.

    Args:
        device: as named, e.g. ``cuda:0``.
        uuid: of the GPU.
        settings: asked each time, so that new ones count at once.
        budgets: what was spent.
        look: asks who else is on the GPU.
        wall: the local time, with its zone.
    """

    def __init__(
        self,
        device: str,
        uuid: str,
        *,
        settings: Callable[[], Settings],
        budgets: Budgets,
        look: Look,
        wall: Wall,
    ) -> None:
        self._device = device
        self._uuid = uuid
        self._settings = settings
        self._budgets = budgets
        self._look = look
        self._wall = wall
        self._free_since_s: float | None = None
        self._looked_s = 0.0
        self._left_s = -math.inf

    @property
    def again_s(self) -> float:
        """How soon to ask again while a job runs."""
        idle = self._settings().idle
        return idle.look_every_s if idle.test else 1.0

    def forget(self) -> None:
        """Nobody has looked for a while: the device must be seen free anew."""
        self._free_since_s = None

    def left(self) -> None:
        """Our process has just left the device, whose load is told as ours for a moment longer."""
        self._left_s = asyncio.get_running_loop().time()

    async def hold(self, *, running: bool = False) -> Hold | None:
        """What keeps the device from being tuned on; None where nothing does.

        Args:
            running: one of our processes computes on it.
        """
        held = self._by_the_clock()
        if held is not None:
            self.forget()
            return held
        if not self._settings().idle.test:
            return None
        return await self._by_others(running=running)

    def _by_the_clock(self) -> Hold | None:
        settings, now = self._settings(), self._wall()
        window = opening(settings.window, now)
        if not window.open:
            if window.changes_at is None:
                return Hold("outside of all windows, and none opens any more", _RECHECK_S)
            until_s = window.changes_at.timestamp() - now.timestamp()
            reason = f"outside of the windows: the next opens at {moment(window.changes_at)}"
            return Hold(reason, min(max(until_s, 0.0), _RECHECK_S))
        spent_up = exhausted(settings.budget, self._budgets.on(now.date().isoformat(), self._uuid))
        if spent_up:
            return Hold(f"{spent_up}; it goes on tomorrow", min(until_tomorrow_s(now), _RECHECK_S))
        return None

    async def _by_others(self, *, running: bool) -> Hold | None:
        idle = self._settings().idle
        begun_s = asyncio.get_running_loop().time()
        if begun_s - self._looked_s > max(_MISSED_LOOKS * idle.look_every_s, 1.0):
            self.forget()
        try:
            our_load = running or begun_s - self._left_s < _LOAD_LASTS_S
            looking = self._look(self._device, int(running), our_load=our_load)
            seen = await asyncio.wait_for(looking, _LOOK_TIMEOUT_S)
        except asyncio.TimeoutError:
            self.forget()
            return Hold("the GPU does not answer who is on it", idle.look_every_s)
        now_s = self._looked_s = asyncio.get_running_loop().time()
        if seen.busy:
            self.forget()
            return Hold(f"the GPU is busy: {seen.why}", idle.look_every_s, figure=seen.figure)
        if self._free_since_s is None:
            self._free_since_s = now_s
        calm_s = now_s - self._free_since_s
        if running or calm_s >= idle.calm_s:
            return None
        return Hold(
            f"waits until the GPU has been free for {idle.calm_s:g} s",
            min(idle.look_every_s, idle.calm_s - calm_s),
            tell=False,
        )


class Opening(NamedTuple):
    """Whether tuning is allowed at a time.

    Attributes:
        open: True inside of a window, and where there are none.
        changes_at: when the last open window closes, or the next opens; None for never.
    """

    open: bool
    changes_at: datetime | None


def local_zone(localtime: Path = _LOCALTIME) -> tzinfo:
    """The machine's time zone with its summer time, by $TZ or /etc/localtime; UTC where neither tells."""
    named = os.environ.get("TZ", "").removeprefix(":")
    try:
        if named and not named.startswith("/"):
            return ZoneInfo(named)
        with (Path(named) if named else localtime).open("rb") as file:
            return ZoneInfo.from_file(file, key=None)
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return timezone.utc


def opening(windows: Sequence[WindowTable], now: datetime) -> Opening:
    """Whether tuning is allowed.

    A window that summer time moves begins when cron's jobs do, and is as long as it says in hours.

    Args:
        windows: that are in force; without any, tuning is always allowed.
        now: with the zone that the expressions are meant in.
    """
    if not windows:
        return Opening(open=True, changes_at=None)
    ends = [end for window in windows if (end := _end(window, now)) is not None]
    if ends:
        return Opening(open=True, changes_at=max(ends, key=_absolute))
    starts = [start for window in windows if (start := next(CronSim(window.start, now), None)) is not None]
    return Opening(open=False, changes_at=min(starts, key=_absolute, default=None))


def _end(window: WindowTable, now: datetime) -> datetime | None:
    """When a window closes that is open; None for one that is not."""
    began = next(CronSim(window.start, now + _TICK, reverse=True), None)
    if began is None:
        return None
    # in UTC: hours of a local clock are not all of one length
    end = began.astimezone(timezone.utc) + timedelta(hours=window.hours)
    return end.astimezone(now.tzinfo) if end > now.astimezone(timezone.utc) else None


def _absolute(moment: datetime) -> float:
    return moment.timestamp()
