"""A small database with rows in every table, damage to it, and what must be left of it then."""

import os
import random
import shutil
import sqlite3
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import date
from functools import partial
from pathlib import Path

import run_documents
from mirrored import rows

from tuner.database.connection import Database
from tuner.database.files import mirror_of, side_file
from tuner.database.integrity.checksums import TABLES
from tuner.database.jobs import Jobs
from tuner.database.ledger import Ledger
from tuner.database.runs import Store
from tuner.database.transaction import Transaction
from tuner.model.jobs import DeviceIdentity, JobSpec, JobState, Origin
from tuner.model.plan import Configuration
from tuner.model.records import Conditions, RunStatus
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult

CONDITIONS = Conditions(
    workloads=(("scan-lf:N=4", 1024),),
    sources={},
    device=DeviceIdentity("sim:k40c", "GPU", "GPU-1", "", "", modelled=True),
    objective="time",
    policy="random",
    seed=0,
    clocks="off",
    settings={},
)
DAY = date(2026, 1, 31)
RowName = tuple[str, tuple[object, ...]]  # table and key


def everything(path: Path) -> None:
    """Fill a database: rows in every table, some of which need several pages."""
    with Database(path) as database:
        jobs, ledger, store = Jobs(database), Ledger(database), Store(database)
        for number in range(6):
            job = jobs.add(JobSpec(("scan-lf:N=4",)), origin=Origin.CLIENT, priority=float(number))
            run = store.begin(CONDITIONS)
            for place in range(5):
                trial = Trial((Configuration({"P": place}),))
                measurement = Measurement((WorkloadResult(Status.OK, 1e-3),), 1e-3 * (place + 1))
                store.add(run, place, trial, measurement, CONDITIONS.names)
            store.end(
                run,
                RunStatus.FINISHED,
                run_documents.answered(
                    run_documents.trial({"scan-lf:N=4": {"P": 1}}, text="y" * 1500 * number)
                ),
            )
            jobs.change(job.id, JobState.RUNNING, run=run, started=True)
            ledger.add_sample(run, {"cost": float(number)})
            ledger.remember_analytical(f"key {number}", {"rule": "x" * 900 * number})
            ledger.remember_model("scan-lf", f"key {number}", {"v": "x" * 900 * number})
            ledger.spend(f"2026-01-{number:02}", "GPU-1", 1.5 * number, 2.0)
            database.write(partial(_note_origin, run))
        ledger.add_uses({f"use {number}": 0.5 + number for number in range(30)})


def _note_origin(run: int, transaction: Transaction) -> None:
    """Let a run be one that was merged."""
    transaction.insert(
        "INSERT INTO merged (run_id, content, source, identity, number, at) VALUES (?, ?, ?, ?, ?, ?)",
        (run, f"{run:064x}", "other.db", "5" * 32, run + 7, "2026-01-02T03:04:05.678+00:00"),
    )


@dataclass(frozen=True)
class Damage:
    """What happens to some bytes of a file.

    Attributes:
        mirror: to which of both files.
        how: ``bits``, ``zeroes``, ``garbage`` or ``cut off``.
        place: where, as a share of the file.
        length: bytes, or bits.
    """

    mirror: bool
    how: str
    place: float
    length: int

    def do(self, path: Path) -> None:
        """Do it to a database."""
        file = mirror_of(path) if self.mirror else path
        size = file.stat().st_size
        begin = int(self.place * size)
        dice = random.Random(f"{self}")  # noqa: S311 - damage, no secret
        if self.how == "cut off":
            os.truncate(file, begin)
            return
        content = bytearray(file.read_bytes())
        end = min(begin + self.length, size)
        if self.how == "bits":
            for _ in range(1 + self.length % 4):
                content[dice.randrange(size)] ^= 1 << dice.randrange(8)
        else:
            content[begin:end] = bytes(end - begin) if self.how == "zeroes" else dice.randbytes(end - begin)
        file.write_bytes(content)


@dataclass(frozen=True)
class Model:
    """A database as it was written, closed.

    Attributes:
        path: of it.
        rows: all of them.
    """

    path: Path
    rows: dict[RowName, tuple[object, ...]] = field(repr=False)  # too long for a report of a failure

    @classmethod
    def made(cls, path: Path) -> "Model":
        """Make one with a backup."""
        everything(path)
        with Database(path) as database:
            assert database.back_up(DAY)
        for file in (path, mirror_of(path)):
            with closing(sqlite3.connect(file)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert not side_file(file, "-wal").exists() or side_file(file, "-wal").stat().st_size == 0
        return cls(path, named(path))

    def copy(self, folder: Path, *, backup: bool = False) -> Path:
        """Copy both files to a folder, which is replaced.

        Args:
            folder: a new one.
            backup: with the backup.
        """
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in (self.path, mirror_of(self.path), *([backup_of(self.path)] if backup else [])):
            shutil.copy(file, folder / file.name)
        return folder / self.path.name

    def left(self, path: Path) -> set[RowName]:
        """Find the rows that are as they were in a file of which SQLite can read every page."""
        found: set[RowName] = set()
        for file in (path, mirror_of(path)):
            with suppress(sqlite3.Error, UnicodeDecodeError), closing(sqlite3.connect(file)) as connection:
                connection.execute("PRAGMA cell_size_check = ON")
                connection.text_factory = bytes
                if connection.execute("PRAGMA integrity_check").fetchall() == [(b"ok",)]:
                    connection.text_factory = str
                    found |= {name for name, row in self.rows.items() if _reads(connection, name) == row}
        return found


def _reads(connection: sqlite3.Connection, name: RowName) -> tuple[object, ...] | None:
    table = TABLES[name[0]]
    statement = f"SELECT {table.listed()} FROM {table.name} WHERE {table.where_key}"  # noqa: S608
    with suppress(sqlite3.Error):  # a text that is none
        row: tuple[object, ...] | None = connection.execute(statement, name[1]).fetchone()
        return row
    return None


def backup_of(path: Path) -> Path:
    """Name the backup of a database."""
    return path.with_name(f"{path.name}.backup-{DAY}")


def named(path: Path) -> dict[RowName, tuple[object, ...]]:
    """All rows of a file by their names, without those kept aside."""
    return {
        (table, row[: TABLES[table].keys]): row
        for table, found in rows(path).items()
        if table != "isolated"
        for row in found
    }
