"""Points in time are written one way, wherever people read them."""

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.model.units import MOMENT_WIDTH, moment, with_moments


@pytest.mark.parametrize(
    "at",
    [
        "2026-11-21T22:00:00.123+00:00",
        "2026-11-21T23:00:00+01:00",
        "2026-11-21T22:00:00Z",
        "2026-11-21T22:00:00",
    ],
)
def test_a_moment_is_in_utc_to_the_second(at: str) -> None:
    """Whatever its zone and precision, and without a zone as UTC."""
    assert moment(at) == "2026-11-21 22:00:00 UTC"
    assert with_moments(f"run 1 of {at}, stale") == "run 1 of 2026-11-21 22:00:00 UTC, stale"


def test_what_is_no_moment_stays() -> None:
    """None is a dash; text of a newer daemon is shown as it is."""
    assert moment(None) == "–"
    assert moment("soon") == "soon"


@given(
    st.datetimes(min_value=datetime(1971, 1, 2), max_value=datetime(9000, 1, 1)),  # noqa: DTZ001 - zone follows
    st.integers(-23, 23),
)
def test_all_moments_are_as_wide(at: datetime, hours: int) -> None:
    """So a table can keep them whole."""
    assert len(moment(at.replace(tzinfo=timezone(timedelta(hours=hours))))) == MOMENT_WIDTH
