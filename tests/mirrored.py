"""A database with something of everything in it, and all that a file says, for tests."""

import json
import sqlite3
from contextlib import closing
from pathlib import Path

from tuner.database.connection import Database
from tuner.database.integrity.checksums import TABLES
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.transaction import Transaction
from tuner.model.jobs import JobSpec, Origin

ENTRIES = 120  # some hundred thousand bytes: pages of all kinds, and records that need several


def filled(path: Path) -> None:
    with Database(path) as database:

        def fill(change: Transaction) -> None:
            for number in range(ENTRIES):
                change.execute(
                    "INSERT INTO analytical (key, document) VALUES (?, ?)",
                    (f"{number}", json.dumps({"v": "x" * 97 * (number % 60)})),
                )

        database.write(fill)
        Ledger(database).add_uses({f"use {number}": 1 + number for number in range(ENTRIES)})
        Jobs(database).add(JobSpec(("scan-lf:N=4",)), origin=Origin.CLIENT)


def content(path: Path) -> list[str]:
    """All that a file says."""
    with closing(sqlite3.connect(path)) as connection:
        return list(connection.iterdump())


def rows(path: Path) -> dict[str, list[tuple[object, ...]]]:
    """All rows with checksums, by table."""
    with closing(sqlite3.connect(path)) as connection:
        return {
            name: connection.execute(f"SELECT {table.listed()} FROM {name} ORDER BY 1, 2").fetchall()  # noqa: S608
            for name, table in TABLES.items()
        }
