"""The scrub: an idle daemon finds damage that nobody reads, says so, and answers from what is right."""

import asyncio
import os
import threading
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import date, datetime, timedelta
from pathlib import Path

import pytest
from answering_scene import conditions, document
from service_rig import NOON, play

from tuner.daemon.backlog import maintenance
from tuner.daemon.backlog.maintenance import Scrub
from tuner.daemon.metrics import Metrics
from tuner.database.connection import Database
from tuner.database.files import mirror_of
from tuner.database.runs import Store
from tuner.database.storage import Repositories, Storage
from tuner.model.records import RunStatus

NAMES = ("scan-lf:N=4",)


class Rig:
    """A scrub over a real database of some runs."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.storage = Storage(path)
        self.metrics = Metrics("1")
        self.refreshed = asyncio.Event()
        self.busy = False
        self.looks = 0
        self.day = NOON
        self.scrub = Scrub(
            self.storage, metrics=self.metrics, busy=self._busy, refresh=self._refresh, wall=self._wall
        )

    def _busy(self) -> bool:
        self.looks += 1
        return self.busy

    async def _refresh(self) -> None:
        self.refreshed.set()

    def _wall(self) -> datetime:
        return self.day

    def seen(self, name: str) -> float:
        """A metric."""
        lines = self.metrics.render().decode().splitlines()
        return next(float(line.split()[1]) for line in lines if line.startswith(f"tuner_database_{name} "))

    async def until_read(self) -> None:
        """Wait for the end of a pass."""
        while not self.seen("last_full_check_timestamp_seconds"):  # noqa: ASYNC110 - in played time
            await asyncio.sleep(1.0)

    async def until_looked(self, count: int) -> None:
        """Wait until it has been asked so often whether the daemon is busy."""
        while self.looks < count:  # noqa: ASYNC110 - likewise
            await asyncio.sleep(1.0)


@asynccontextmanager
async def rig(folder: Path) -> AsyncIterator[Rig]:
    path = folder / "tuner.db"
    with Store(path) as store:
        for _ in range(5):
            store.end(store.begin(conditions(NAMES)), RunStatus.FINISHED, document(NAMES))
    made = Rig(path)
    await made.storage.run(lambda _: None)  # open, and examined
    made.scrub.begin()
    try:
        yield made
    finally:
        await made.scrub.end()
        await made.storage.close()


def damage(path: Path) -> None:
    content = path.read_bytes()
    assert b'"r":' in content
    path.write_bytes(content.replace(b'"r":', b'"q":', 1))


def test_a_pass_reads_every_row_and_rests(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All rows are verified, two at a time, and then no more for a day."""
    monkeypatch.setattr(maintenance, "_ROWS", 2)

    async def test() -> None:
        async with rig(tmp_path) as made:
            await made.until_read()
            looks = made.looks
            await asyncio.sleep(100.0)

            assert made.seen("rows_checked_total") == 5
            assert made.seen("last_full_check_timestamp_seconds") == NOON.timestamp()
            assert made.looks == looks >= 3
            assert made.scrub.kept_aside == made.scrub.notices == []

    play(test())


def test_a_daemon_with_work_reads_nothing(tmp_path: Path) -> None:
    """While a job runs, or much is asked, the scrub waits."""

    async def test() -> None:
        async with rig(tmp_path) as made:
            made.busy = True
            await made.until_looked(3)
            assert made.seen("rows_checked_total") == 0
            made.busy = False
            await made.until_read()

    play(test())


def test_a_backup_is_kept_of_each_day(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    """Also while a job runs: one a day, three of them; without a mirror or room, none is made."""

    def days() -> list[str]:
        return sorted(file.name[-2:] for file in tmp_path.glob("tuner.db.backup-*"))

    async def test() -> None:
        async with rig(tmp_path) as made:
            made.busy = True
            await made.until_looked(3)
            assert days() == ["02"]
            for _ in range(4):
                made.day += timedelta(days=1)
                await made.until_looked(made.looks + 2)
            assert days() == ["04", "05", "06"]
            with pytest.MonkeyPatch.context() as patches:
                patches.setattr("tuner.database.backup._ROOM", 1 << 60)
                made.day += timedelta(days=1)
                await made.until_looked(made.looks + 5)
            assert days() == ["04", "05", "06"]
            assert caplog.text.count("no backup of the database on 2026-03-07: ") == 1
            assert made.storage.trouble == ""

    play(test())


@pytest.mark.parametrize("busy", [False, True])
def test_a_backup_that_failed_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, *, busy: bool
) -> None:
    """Within minutes and no sooner, whether the daemon rests for the day or looks every few seconds.

    Its thread goes after the daemon's others, and after its clients.
    """
    monkeypatch.setattr(maintenance, "_AGAIN_S", 60.0)
    tried: list[date] = []
    nice: set[int] = set()

    def back_up(_: Database, day: date) -> bool:
        tried.append(day)
        nice.add(os.getpriority(os.PRIO_PROCESS, threading.get_native_id()))
        return False

    monkeypatch.setattr(Database, "back_up", back_up)

    async def test() -> None:
        async with rig(tmp_path) as made:
            made.busy = busy
            await asyncio.sleep(300.0)

            assert 3 <= len(tried) <= 300.0 / 60.0
            assert set(tried) == {NOON.date()}
            assert nice == {max(10, os.getpriority(os.PRIO_PROCESS, 0))}

    play(test())


@pytest.mark.parametrize("both", [False, True])
def test_damage_is_found_and_told(tmp_path: Path, *, both: bool) -> None:
    """A row is put right or kept aside; answers are read again, and the status and the metrics say so."""

    async def test() -> None:
        async with rig(tmp_path) as made:

            def spoil(books: Repositories) -> None:
                books.database.close()  # nothing stays in a log
                for file in (made.path, mirror_of(made.path)) if both else (made.path,):
                    damage(file)

            await made.storage.run(spoil)  # where the scrub reads, so that it does not read in between
            await made.refreshed.wait()

            assert made.seen("rows_isolated") == int(both)
            assert made.seen("rows_repaired_total") == int(not both)
            assert bool(made.scrub.kept_aside) == both
            assert bool(made.scrub.notices) != both
            await made.until_read()

    play(test())
