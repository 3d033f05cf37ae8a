"""When tuning is allowed, summer time and all."""

from datetime import datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.daemon.devices.admission import WindowStatus, local_zone, window_status
from tuner.daemon.settings import WindowTable

BERLIN = ZoneInfo("Europe/Berlin")
NIGHT = WindowTable(start="0 22 * * 1-5", hours=8)


def berlin(text: str, fold: int = 0) -> datetime:
    return datetime.fromisoformat(text).replace(tzinfo=BERLIN, fold=fold)


def test_without_windows_tuning_is_always_allowed() -> None:
    """No window is no limit."""
    assert window_status((), berlin("2026-03-02T12:00")) == WindowStatus(open=True, changes_at=None)


@pytest.mark.parametrize(
    ("now", "allowed", "changes_at"),
    [
        ("2026-03-02T21:59:59", False, "2026-03-02T22:00"),
        ("2026-03-02T22:00:00", True, "2026-03-03T06:00"),
        ("2026-03-03T05:59:59", True, "2026-03-03T06:00"),
        ("2026-03-03T06:00:00", False, "2026-03-03T22:00"),
        ("2026-03-07T05:00:00", True, "2026-03-07T06:00"),  # Friday's, on Saturday
        ("2026-03-07T22:00:00", False, "2026-03-09T22:00"),
    ],
)
def test_window_is_open_from_its_start_for_its_hours(now: str, changes_at: str, *, allowed: bool) -> None:
    """A window begins with the minute that the expression names, and is as long as it says."""
    assert window_status((NIGHT,), berlin(now)) == WindowStatus(open=allowed, changes_at=berlin(changes_at))


def test_overlapping_windows_close_with_the_last() -> None:
    """While one of several is open, tuning is allowed."""
    late = WindowTable(start="0 4 * * *", hours=4)
    assert window_status((NIGHT, late), berlin("2026-03-03T05:00")).changes_at == berlin("2026-03-03T08:00")


def test_a_start_that_summer_time_leaves_out_is_made_up_for() -> None:
    """2:30 does not exist on that night: the window opens at 3:00, where cron's jobs run."""
    half = WindowTable(start="30 2 * * *", hours=0.5)
    assert not window_status((half,), berlin("2026-03-29T01:59:59")).open
    assert window_status((half,), berlin("2026-03-29T03:00")).open
    assert not window_status((half,), berlin("2026-03-29T03:30")).open


def test_hours_are_hours() -> None:
    """A night of nine hours by the clock has eight in spring: the window closes by what has passed."""
    closes = window_status((WindowTable(start="0 22 * * *", hours=8),), berlin("2026-03-28T23:00")).changes_at
    assert closes == berlin("2026-03-29T07:00")


@given(
    st.datetimes(datetime(2026, 1, 1), datetime(2027, 1, 1)),  # noqa: DTZ001 - the zone comes below
    st.integers(0, 59),
    st.integers(0, 23),
    st.floats(0.5, 30.0),
)
def test_nothing_changes_before_it_is_said_to(moment: datetime, minute: int, hour: int, hours: float) -> None:
    """Until ``changes_at`` a window stays as it is, and then it is the other way."""
    windows = (WindowTable(start=f"{minute} {hour} * * *", hours=hours),)
    now = moment.replace(tzinfo=BERLIN).astimezone(timezone.utc).astimezone(BERLIN)
    seen = window_status(windows, now)
    assert seen.changes_at is not None
    change = seen.changes_at.astimezone(timezone.utc)
    assert change > now.astimezone(timezone.utc)
    second = timedelta(seconds=1)
    if change - now.astimezone(timezone.utc) > second:
        before = window_status(windows, (change - second).astimezone(BERLIN))
        assert before.open == seen.open
    after = window_status(windows, (change + second).astimezone(BERLIN))
    assert after.open != seen.open or hours >= 23  # the next may have begun before this one ended


@pytest.mark.parametrize(("named", "zone"), [("Asia/Tokyo", "Asia/Tokyo"), (":Asia/Tokyo", "Asia/Tokyo")])
def test_tz_names_the_zone(named: str, zone: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """$TZ goes before /etc/localtime."""
    monkeypatch.setenv("TZ", named)
    assert str(local_zone()) == zone


def test_a_machine_without_a_zone_is_in_utc(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither $TZ nor /etc/localtime: UTC."""
    monkeypatch.delenv("TZ", raising=False)
    assert local_zone(tmp_path / "localtime") is timezone.utc
