"""Checksums of rows: nothing else has the same, every row that is written has its own, damage gets none."""

import sqlite3
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path

import pytest
from damaging import everything
from examples import FEW
from hypothesis import given
from hypothesis import strategies as st
from mirrored import rows

from tuner.database.connection import Database
from tuner.database.files import mirror_of
from tuner.database.integrity.checksums import TABLES, is_sound, row_checksum
from tuner.database.integrity.row_comparison import has_our_tables
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.model.errors import StoreError
from tuner.model.jobs import JobSpec, Origin
from tuner.model.records import RunStatus

values = st.none() | st.integers(-(2**63), 2**63 - 1) | st.floats(allow_nan=False) | st.text() | st.binary()
columns = st.lists(values, max_size=5).map(tuple)


def exactly(row: tuple[object, ...]) -> list[tuple[type, str]]:
    return [(type(value), repr(value)) for value in row]


@given(columns, columns)
def test_other_rows_have_other_checksums(first: tuple[object, ...], second: tuple[object, ...]) -> None:
    """NULL, integers, reals, texts and bytes are told apart, and where one value ends."""
    same = row_checksum("runs", *first) == row_checksum("runs", *second)
    assert same == (exactly(first) == exactly(second))


@given(st.sampled_from([(None, ""), (1, 1.0), ("1", 1), (0.0, -0.0), ("a", b"a"), ("é", "e\u0301")]))
def test_values_that_look_alike_are_told_apart(pair: tuple[object, object]) -> None:
    """Values that are equal, or print the same, have other checksums; so has the same in other tables."""
    assert row_checksum("runs", pair[0]) != row_checksum("runs", pair[1])
    assert row_checksum("runs", pair[0]) != row_checksum("jobs", pair[0])
    assert row_checksum("runs", "a", "b") != row_checksum("runs", "ab", "")


def test_every_row_that_is_written_is_sound(tmp_path: Path) -> None:
    """Rows of every table have right checksums in both files, in the layout that is described."""
    path = tmp_path / "tuner.db"
    everything(path)

    found = rows(path)
    assert found == rows(mirror_of(path))
    assert all(found[name] for name in TABLES if name != "isolated")
    assert all(is_sound(name, row) for name, some in found.items() for row in some)
    with closing(sqlite3.connect(path)) as connection:
        assert has_our_tables(connection)
        for name, table in TABLES.items():
            there = connection.execute(f"SELECT name, pk FROM pragma_table_info('{name}')").fetchall()  # noqa: S608
            assert tuple(column for column, _ in there) == table.all_columns
            assert tuple(column for column, key in there if key) == table.key_columns


@FEW
@given(st.dictionaries(st.text(st.characters(codec=None, categories=None)), st.floats(-1e9, 1e9), max_size=4))
def test_any_text_can_be_stored(tmp_path: Path, uses: dict[str, float]) -> None:
    """Texts with NUL or half a character are stored as far as SQLite can, and are sound."""
    with Database(tmp_path / "tuner.db") as database:
        Ledger(database).add_uses(uses)
        Jobs(database).add(JobSpec(("scan-lf:N=4",)), origin=Origin.CLIENT, priority=1)
        assert database.examine().whole


def test_numbers_that_no_database_holds_are_an_error(tmp_path: Path) -> None:
    """A number of more than 64 bits is refused with an error of this package."""
    with Database(tmp_path / "tuner.db") as database, pytest.raises(StoreError, match="cannot be stored"):
        Jobs(database).job(2**70)


@pytest.mark.parametrize("table", ["jobs", "runs", "uses"])
def test_damaged_row_is_not_written_on(tmp_path: Path, table: str) -> None:
    """A change of a row that is not sound takes the sound one first, and changes that."""
    path = tmp_path / "tuner.db"
    everything(path)
    before = rows(path)
    statement = {
        "jobs": "UPDATE jobs SET origin = 'daemon' WHERE id = 2",
        "runs": "UPDATE runs SET conditions = '{}' WHERE id = 2",
        "uses": "UPDATE uses SET count = 77 WHERE key = 'use 3'",
    }[table]
    with Database(path) as database:
        with closing(sqlite3.connect(path)) as connection, connection:
            connection.execute(statement)
        if table == "jobs":
            Jobs(database).prioritise({2: 9.0})
        elif table == "runs":
            Store(database).end(2, RunStatus.FINISHED, None)
        else:
            Ledger(database).add_uses({"use 3": 1.0})

    after = rows(path)
    assert after == rows(mirror_of(path))
    changed = [
        (
            old[: TABLES[table].keys],
            [place for place, pair in enumerate(zip(old, new, strict=True)) if len(set(pair)) > 1],
        )
        for old, new in zip(before[table], after[table], strict=True)
        if old != new
    ]
    names = TABLES[table].all_columns
    ((key, places),) = changed
    assert key in [(2,), ("use 3",)]
    assert {names[place] for place in places} <= {
        *("priority", "count", "answer", "ended", "ended_at", "version", "checksum")
    }


def test_damaged_row_is_not_deleted_for_what_it_says(tmp_path: Path) -> None:
    """A job that damage shows as ended long ago is not forgotten."""
    path = tmp_path / "tuner.db"
    everything(path)
    with Database(path) as database:
        jobs = Jobs(database)
        for file in (path, mirror_of(path)):
            with closing(sqlite3.connect(file)) as connection, connection:
                connection.execute("UPDATE jobs SET state = 'failed', ended_at = '1999' WHERE id = 2")
        assert jobs.forget(datetime(9999, 1, 1, tzinfo=timezone.utc)) == 0
        assert [row.key for row in database.isolated()] == [(2,)]
