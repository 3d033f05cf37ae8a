"""A small database with rows in every table, damage to it, and what must be left of it then."""

import os
import random
import shutil
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import run_documents
from mirrored import rows

from tuner.database.connection import Database
from tuner.database.files import mirror_of, side_file
from tuner.database.integrity import pages as form
from tuner.database.integrity.checksums import TABLES, is_sound
from tuner.database.integrity.pages import INDEX_INTERIOR, INDEX_LEAF, TABLE_LEAF, Pages
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
Place = tuple[int, int]  # begin and end in a file
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
            ledger.add_sample(run, {"joules": float(number)})
            ledger.remember_analytical(f"key {number}", {"v": "x" * 900 * number})
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


def places_of(path: Path) -> dict[RowName, list[Place]]:
    """Where in a file, which has no log, the bytes of each row are."""
    found: dict[RowName, list[Place]] = {}
    with closing(Pages(path, b"")) as pages:
        for number in pages.numbers:
            page, start = pages.page(number) or b"", 100 if number == 1 else 0
            if page[start] not in (TABLE_LEAF, INDEX_LEAF, INDEX_INTERIOR):
                continue
            for begin in form.cells(page, start)[0]:
                for name, parts in _cell(pages, number, begin, page[start]):
                    found.setdefault(name, parts)
    return found


def _cell(pages: Pages, number: int, begin: int, kind: int) -> Iterator[tuple[RowName, list[Place]]]:
    page, usable = pages.page(number) or b"", pages.usable_bytes
    at = begin + (4 if kind == INDEX_INTERIOR else 0)
    size, at = form.varint(page, at)
    rowid = None
    if kind == TABLE_LEAF:
        rowid, at = form.varint(page, at)
    types, header_bytes = form.serial_types(page, at, size) or ([], 0)
    most = usable - 35 if kind == TABLE_LEAF else (usable - 12) * 64 // 255 - 23
    least = (usable - 12) * 32 // 255 - 23
    local = size
    if size > most:
        local = least + (size - least) % (usable - 4)
        local = local if local <= most else least
    offset = (number - 1) * pages.page_bytes
    parts, record = (
        [(offset + begin, offset + at + local + (4 if local < size else 0))],
        page[at : at + local],
    )
    following = int.from_bytes(page[at + local : at + local + 4], "big")
    while len(record) < size:
        more, there = pages.page(following) or b"", (following - 1) * pages.page_bytes
        took = min(usable - 4, size - len(record))
        parts.append((there, there + 4 + took))
        record += more[4 : 4 + took]
        following = int.from_bytes(more[:4], "big")
    row = form.values(record, types, header_bytes)
    row = row if rowid is None else (rowid, *row[1:])
    for table in TABLES.values():
        if len(row) == len(table.all_columns) and table.numbered == (rowid is not None):
            as_read = table.as_read(row)
            if is_sound(table.name, as_read):
                yield (table.name, as_read[: table.keys]), parts


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

    def do(self, path: Path) -> list[Place]:
        """Do it to a database, and say which bytes may be others now."""
        file = mirror_of(path) if self.mirror else path
        size = file.stat().st_size
        begin = int(self.place * size)
        dice = random.Random(f"{self}")  # noqa: S311 - damage, no secret
        if self.how == "cut off":
            os.truncate(file, begin)
            return [(begin, size)]
        content = bytearray(file.read_bytes())
        end = min(begin + self.length, size)
        places = [(begin, end)]
        if self.how == "bits":
            spots = [dice.randrange(size) for _ in range(1 + self.length % 4)]
            for spot in spots:
                content[spot] ^= 1 << dice.randrange(8)
            places = [(spot, spot + 1) for spot in spots]
        else:
            content[begin:end] = bytes(end - begin) if self.how == "zeroes" else dice.randbytes(end - begin)
        file.write_bytes(content)
        return places


@dataclass(frozen=True)
class Model:
    """A database as it was written, closed.

    Attributes:
        path: of it.
        rows: all of them.
        places: where in either file each of them is.
    """

    path: Path
    rows: dict[RowName, tuple[object, ...]]
    places: dict[bool, dict[RowName, list[Place]]]

    @classmethod
    def made(cls, path: Path) -> "Model":
        """A new one."""
        everything(path)
        for file in (path, mirror_of(path)):
            with closing(sqlite3.connect(file)) as connection:
                connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
            assert not side_file(file, "-wal").exists() or side_file(file, "-wal").stat().st_size == 0
        return cls(path, named(path), {False: places_of(path), True: places_of(mirror_of(path))})

    def copy(self, folder: Path) -> Path:
        """A copy of both files in a folder, which is replaced."""
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        for file in (self.path, mirror_of(self.path)):
            shutil.copy(file, folder / file.name)
        return folder / self.path.name

    def left(self, spoilt: dict[bool, list[Place]]) -> set[RowName]:
        """The rows that at least one of the files still has as they were written."""
        return {
            name
            for mirror, there in self.places.items()
            for name, parts in there.items()
            if not any(a < end and begin < b for a, b in parts for begin, end in spoilt.get(mirror, []))
        }


def named(path: Path) -> dict[RowName, tuple[object, ...]]:
    """All rows of a file by their names, without those kept aside."""
    return {
        (table, row[: TABLES[table].keys]): row
        for table, found in rows(path).items()
        if table != "isolated"
        for row in found
    }
