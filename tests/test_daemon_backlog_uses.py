"""Counts of use: they fade, they survive the daemon, and their table stays small."""

import math
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tuner.daemon.backlog.backlog import HALF_LIFE_DAYS, MOST_QUESTIONS, UseCounter
from tuner.database.connection import Database
from tuner.database.ledger import Ledger

DAY_S = 86_400.0


class Clock:
    """Seconds that a test moves on."""

    def __init__(self) -> None:
        self.now_s = 0.0

    def __call__(self) -> float:
        return self.now_s


def test_a_steady_use_is_told_per_day() -> None:
    """Ten uses a day, every hour, over many weeks are told as ten a day."""
    clock = Clock()
    uses = UseCounter(monotonic=clock)
    for _ in range(24 * 120):
        clock.now_s += DAY_S / 24
        uses.add("a", 10 / 24)
    assert uses.per_day()["a"] == pytest.approx(10.0, rel=0.01)


def test_what_is_used_no_more_fades_and_goes() -> None:
    """A count halves with its half-life, and what is next to nothing is forgotten."""
    clock = Clock()
    uses = UseCounter(monotonic=clock)
    uses.add("a", 8.0)
    before = uses.per_day()["a"]
    clock.now_s += HALF_LIFE_DAYS * DAY_S
    assert uses.per_day()["a"] == pytest.approx(before / 2)
    clock.now_s += 100 * HALF_LIFE_DAYS * DAY_S
    assert uses.per_day() == {}


@given(
    st.lists(
        st.tuples(
            st.sampled_from("abc"),
            st.floats(0, 1e9),
            st.floats(0, 30 * DAY_S),
            st.sampled_from(["", "take", "used", "fail"]),
        ),
        max_size=20,
    )
)
def test_the_disk_has_what_the_memory_has(steps: list[tuple[str, float, float, str]]) -> None:
    """Changes that were taken, less those put back, sum up to the counts; a new process goes on from them."""
    clock = Clock()
    uses = UseCounter(monotonic=clock)
    disk: dict[str, float] = {}
    for key, count, passed_s, flush in [*steps, ("a", 0.0, 0.0, "take")]:
        clock.now_s += passed_s
        uses.add(key, count)
        if not flush:
            continue
        changes = uses.take(used_only=flush == "used")
        if flush == "used":
            known = disk.get(key, 0.0) + changes.get(key, 0.0)
            assert known == pytest.approx(uses.per_day().get(key, 0.0) * HALF_LIFE_DAYS / math.log(2.0))
        if flush == "fail":
            uses.put_back(changes)
            continue
        for name, change in changes.items():
            disk[name] = disk.get(name, 0.0) + change
    told = uses.per_day()
    again = UseCounter(disk, monotonic=Clock()).per_day()
    for key in disk.keys() | told.keys():
        assert again.get(key, 0.0) == pytest.approx(told.get(key, 0.0), abs=1e-5)


def test_the_least_used_makes_room() -> None:
    """The table does not grow; what is used often stays in it whatever else is asked once."""
    uses = UseCounter(monotonic=Clock())
    uses.add("often", 100.0)
    for number in range(MOST_QUESTIONS + 100):
        uses.add(f"once {number}", 1.0)
    assert len(uses) == MOST_QUESTIONS
    assert next(iter(uses.per_day())) == "often"


def test_damaged_counts_are_not_taken_over() -> None:
    """What is no number on the disk counts nothing; what is negative by rounding is corrected there."""
    uses = UseCounter({"a": math.nan, "b": math.inf, "c": -1e-9, "d": 2.0}, monotonic=Clock())
    assert list(uses.per_day()) == ["d"]
    assert uses.take() == {"c": 1e-9}


def test_what_has_faded_leaves_no_row_behind(tmp_path: Path) -> None:
    """Whatever clients have asked over the years, the table on the disk is as small as that in memory."""
    clock = Clock()
    uses = UseCounter(monotonic=clock)
    with Database(tmp_path / "tuner.db") as database:
        ledger = Ledger(database)
        for number in range(50):
            uses.add(f"question {number}", 1.0)
            ledger.add_uses(uses.take())
            clock.now_s += 3 * HALF_LIFE_DAYS * DAY_S
        ledger.add_uses(uses.take())
        assert len(ledger.uses()) == len(uses) < 5
