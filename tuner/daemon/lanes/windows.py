"""When tuning is allowed: windows that a cron expression opens, in local time."""

import os
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone, tzinfo
from pathlib import Path
from typing import NamedTuple
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from cronsim import CronSim

from tuner.daemon.settings.tables import WindowTable

_LOCALTIME = Path("/etc/localtime")
_TICK = timedelta(seconds=1)  # of cron expressions


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
