"""Admission of jobs to a device: windows, budgets, and other users of the GPU.

Windows are opened by cron expressions, in local time.
"""

import asyncio
import math
import os
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim

from tuner.daemon.jobs.shares import Budgets, Cost
from tuner.daemon.settings import BudgetTable, Settings, WindowTable
from tuner.devices.gpu_users import Contention
from tuner.model.jobs import DeviceChoice, DeviceIdentity
from tuner.model.units import moment

_RECHECK_S = 60.0  # a change of the wall clock is noticed after so long
_HALTED_S = 2.0  # the state of the daemon is looked at as often
_LOOK_TIMEOUT_S = 10.0  # for a look at a GPU; after it, its driver hangs
_LOAD_LASTS_S = 2.0  # utilisation is a mean over the past: up to a second of it on discrete GPUs
_MISSED_LOOKS = 8.0  # looks left out, after which it is unknown whether the GPU was free

WallClock = Callable[[], datetime]
_LOCALTIME = Path("/etc/localtime")
_TICK = timedelta(seconds=1)  # of cron expressions


def exhausted(budget: BudgetTable, spent: Cost, of_host: Cost) -> str:
    """Return the reason that nothing more may be spent on a GPU today; empty if something may."""
    for limit, value, unit, whose in (
        (budget.seconds_per_day, spent.seconds, "s", ""),
        (budget.joules_per_day, spent.joules, "J", ""),
        (budget.host_seconds_per_day, of_host.seconds, "s", " on all GPUs of the host"),
        (budget.host_joules_per_day, of_host.joules, "J", " on all GPUs of the host"),
    ):
        if limit is not None and value >= limit:
            return f"today's budget of {limit:g} {unit} of measuring{whose} is used up"
    return ""


def until_tomorrow_s(now: datetime) -> float:
    """Seconds to the next local midnight, with summer time."""
    tomorrow = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(0.0, tomorrow.timestamp() - now.timestamp())


CheckUsers = Callable[[str, int, bool], Awaitable[Contention]]
"""Looks now for other users of a device: its name, how many processes are ours, and whether its load is ours.

That it may still be, where our process has just left.
"""


class Block(NamedTuple):
    """Condition that blocks jobs on a device now.

    Attributes:
        reason: for people.
        retry_s: when to ask again at the latest.
        report: False for a reason that passes by itself at once.
        load: a figure that differs with each look; empty where there is none.
    """

    reason: str
    retry_s: float
    report: bool = True
    load: str = ""


class Admission:
    """Decides whether a job may run on a device.

    Args:
        identity: of the device.
        settings: asked each time, so that new ones count at once.
        budgets: what was spent.
        check_users: looks for other users of the GPU.
        wall: the local time, with its zone.
        halted: why no job may run on any device; empty where that is not so.
    """

    def __init__(
        self,
        identity: DeviceIdentity,
        *,
        settings: Callable[[], Settings],
        budgets: Budgets,
        check_users: CheckUsers,
        wall: WallClock,
        halted: Callable[[], str] = str,
    ) -> None:
        self._identity = identity
        self._halted = halted
        self._settings = settings
        self._budgets = budgets
        self._check_users = check_users
        self._wall = wall
        self._free_since_s: float | None = None
        self._looked_s = 0.0
        self._left_s = -math.inf

    @property
    def recheck_s(self) -> float:
        """Seconds until the next check while a job runs."""
        idle = self._settings().idle
        return idle.look_every_s if idle.test else 1.0

    def forget(self) -> None:
        """Require the device to be seen free anew: nobody has looked for a while."""
        self._free_since_s = None

    def left(self) -> None:
        """Note that our process has just left the device; its load counts as ours for a moment longer."""
        self._left_s = asyncio.get_running_loop().time()

    async def block(self, *, running: bool = False) -> Block | None:
        """Return the condition that blocks jobs now; None if a job may run.

        Args:
            running: one of our processes computes on the device.
        """
        block = self._outside_limits()
        if block is not None:
            self.forget()
            return block
        if not self._settings().idle.test:
            return None
        return await self._contended(running=running)

    def _outside_limits(self) -> Block | None:
        """The block by the daemon's state, windows and budgets."""
        halted = self._halted()
        if halted:
            return Block(halted, _HALTED_S)
        settings, now = self._settings(), self._wall()
        window = window_status(windows_of(self._identity, settings.window), now)
        if not window.open:
            if window.changes_at is None:
                return Block("outside of all windows, and none opens any more", _RECHECK_S)
            until_s = window.changes_at.timestamp() - now.timestamp()
            reason = f"outside of the windows: the next opens at {moment(window.changes_at)}"
            return Block(reason, min(max(until_s, 0.0), _RECHECK_S))
        day = now.date().isoformat()
        spent = self._budgets.on(day, self._identity.uuid)
        spent_up = exhausted(settings.budget, spent, self._budgets.of_host(day))
        if spent_up:
            return Block(f"{spent_up}; it goes on tomorrow", min(until_tomorrow_s(now), _RECHECK_S))
        return None

    async def _contended(self, *, running: bool) -> Block | None:
        """The block by other users of the GPU."""
        idle = self._settings().idle
        begun_s = asyncio.get_running_loop().time()
        if begun_s - self._looked_s > max(_MISSED_LOOKS * idle.look_every_s, 1.0):
            self.forget()
        try:
            our_load = running or begun_s - self._left_s < _LOAD_LASTS_S
            look = self._check_users(self._identity.spec, int(running), our_load)
            contention = await asyncio.wait_for(look, _LOOK_TIMEOUT_S)
        except asyncio.TimeoutError:
            self.forget()
            return Block("the GPU does not answer who is on it", idle.look_every_s)
        now_s = self._looked_s = asyncio.get_running_loop().time()
        if contention.busy:
            self.forget()
            reason = f"the GPU is busy: {contention.reason}"
            return Block(reason, idle.look_every_s, load=contention.load)
        if self._free_since_s is None:
            self._free_since_s = now_s
        calm_s = now_s - self._free_since_s
        if running or calm_s >= idle.calm_s:
            return None
        return Block(
            f"waits until the GPU has been free for {idle.calm_s:g} s",
            min(idle.look_every_s, idle.calm_s - calm_s),
            report=False,
        )


class WindowStatus(NamedTuple):
    """State of the tuning windows at a time.

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
        file = Path(named) if named else localtime
        return _zone_of(file, file.stat().st_mtime_ns)
    except (OSError, ValueError, ZoneInfoNotFoundError):
        return timezone.utc


@lru_cache(maxsize=1)  # it is asked for several times a second while jobs run
def _zone_of(file: Path, changed_ns: int) -> ZoneInfo:
    """The zone that a file describes, read again where the file has changed."""
    del changed_ns
    with file.open("rb") as opened:
        return ZoneInfo.from_file(opened, key=None)


def local_now() -> datetime:
    """The local time with its zone, summer time included."""
    return datetime.now(local_zone())


def windows_of(identity: DeviceIdentity, windows: Sequence[WindowTable]) -> tuple[WindowTable, ...]:
    """The windows that hold for a device."""
    return tuple(
        window
        for window in windows
        if not window.devices or any(DeviceChoice.parse(name).allows(identity) for name in window.devices)
    )


def window_status(windows: Sequence[WindowTable], now: datetime) -> WindowStatus:
    """Return the state of the tuning windows, and the time of its next change.

    A window that summer time moves begins when cron's jobs do, and is as long as it says in hours.

    Args:
        windows: that are in force; without any, tuning is always allowed.
        now: with the zone that the expressions are meant in.
    """
    if not windows:
        return WindowStatus(open=True, changes_at=None)
    ends = [end for window in windows if (end := _end(window, now)) is not None]
    if ends:
        return WindowStatus(open=True, changes_at=max(ends, key=datetime.timestamp))
    starts = [start for window in windows if (start := next(CronSim(window.start, now), None)) is not None]
    return WindowStatus(open=False, changes_at=min(starts, key=datetime.timestamp, default=None))


def _end(window: WindowTable, now: datetime) -> datetime | None:
    """When a window closes that is open; None for one that is not."""
    began = next(CronSim(window.start, now + _TICK, reverse=True), None)
    if began is None:
        return None
    # in UTC: hours of a local clock are not all of one length
    end = began.astimezone(timezone.utc) + timedelta(hours=window.hours)
    return end.astimezone(now.tzinfo) if end > now.astimezone(timezone.utc) else None
