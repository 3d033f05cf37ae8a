"""The database in the daemon's threads: what a lock, a full disk or damage does to who asks."""

import asyncio
import sqlite3
import threading
from contextlib import closing
from pathlib import Path

import pytest

from tuner.database import files
from tuner.database import storage as module
from tuner.database.connection import Database
from tuner.database.storage import Storage
from tuner.model.errors import StoreBusyError, StoreDamagedError, StoreError, StoreFullError
from tuner.model.jobs import JobSpec, Origin

ORDER = JobSpec(("scan-lf:N=4",), device="sim:jetson-tx1")
PATIENCE_S = 120.0


@pytest.fixture(autouse=True)
def _short_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "BUSY_TIMEOUT_S", 0.05)


@pytest.fixture
def examined(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Which databases were read whole."""
    paths: list[Path] = []
    examine = Database.examine

    def counting(self: Database) -> None:
        paths.append(self.path)
        examine(self)

    monkeypatch.setattr(Database, "examine", counting)
    return paths


async def add(storage: Storage) -> int:
    return (await storage.run(lambda books: books.jobs.add(ORDER, origin=Origin.CLIENT))).id


async def held(storage: Storage) -> sqlite3.Connection:
    """Another process's write transaction; the storage has met it."""
    await add(storage)
    other = sqlite3.connect(storage.path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(StoreBusyError):
        await add(storage)
    return other


def play(scene: object) -> None:
    asyncio.run(asyncio.wait_for(scene, PATIENCE_S))  # type: ignore[arg-type]  # a coroutine


def test_clients_read_while_another_process_writes(tmp_path: Path) -> None:
    """A held write lock keeps nobody from reading, also after a write has failed."""

    async def scene() -> None:
        storage = Storage(tmp_path / "tuner.db")
        with closing(await held(storage)):
            assert [job.id for job in await storage.read(lambda books: books.jobs.jobs())] == [1]
            assert "locked" in storage.trouble
        await storage.close()

    play(scene())


def test_long_work_aside_keeps_nobody_waiting(tmp_path: Path) -> None:
    """While something takes long with a connection of its own, others read, write, and nothing is silent."""

    async def scene() -> None:
        storage = Storage(tmp_path / "tuner.db")
        begun, let = threading.Event(), threading.Event()

        def slowly(books: module.Repositories) -> int:
            begun.set()
            assert let.wait(PATIENCE_S)
            return len(books.jobs.jobs())

        aside = asyncio.create_task(storage.aside(slowly))
        assert await asyncio.to_thread(begun.wait, PATIENCE_S)
        assert await add(storage) == 1
        assert [job.id for job in await storage.read(lambda books: books.jobs.jobs())] == [1]
        assert storage.silent_s == 0.0
        let.set()
        assert await aside == 1
        await storage.close()

    play(scene())


def test_one_at_a_time_waits_for_a_held_lock(tmp_path: Path) -> None:
    """While the database is known to be held, one call waits for it; others fail without doing anything."""

    async def scene() -> None:
        storage = Storage(tmp_path / "tuner.db", pause_s=0.0)
        with closing(await held(storage)) as other:
            let = threading.Event()
            begun = asyncio.Event()
            loop = asyncio.get_running_loop()
            wait = storage._writer._open

            def slowly() -> module.Repositories:
                loop.call_soon_threadsafe(begun.set)
                assert let.wait(PATIENCE_S)
                return wait()

            storage._writer._open = slowly  # type: ignore[method-assign]
            first = asyncio.create_task(storage.run(lambda books: books.jobs.jobs()))
            await begun.wait()
            done: list[bool] = []
            with pytest.raises(StoreBusyError, match="locked"):
                await storage.run(lambda _: done.append(True))
            assert not done
            assert not first.done()
            other.execute("ROLLBACK")
            let.set()
            assert [job.id for job in await first] == [1]
        assert storage.trouble == ""
        assert await add(storage) == 2
        await storage.close()

    play(scene())


def test_who_queued_behind_a_lock_is_not_made_to_wait_again(tmp_path: Path) -> None:
    """Calls that were queued while one waited for a lock in vain fail with it."""

    async def scene() -> None:
        storage = Storage(tmp_path / "tuner.db")
        await add(storage)
        failures: list[None] = []
        storage.failed = lambda: failures.append(None)
        with closing(sqlite3.connect(storage.path, isolation_level=None)) as other:
            other.execute("BEGIN IMMEDIATE")
            outcomes = await asyncio.gather(*(add(storage) for _ in range(8)), return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [StoreBusyError] * 8
        assert len(failures) == 1
        await storage.close()

    play(scene())


def test_a_look_sees_that_the_lock_is_gone(tmp_path: Path) -> None:
    """The trouble lasts as long as nothing can be written, and ends with a look when something can."""

    async def scene() -> None:
        storage = Storage(tmp_path / "tuner.db", pause_s=0.0)
        with closing(await held(storage)) as other:
            await storage.retry()
            assert "locked" in storage.trouble
            other.execute("ROLLBACK")
            await storage.retry()
        assert storage.trouble == ""
        await storage.close()

    play(scene())


@pytest.mark.parametrize(
    ("error", "kept"),
    [
        (StoreBusyError("locked"), True),
        (StoreFullError("full"), True),
        (StoreDamagedError("damaged"), False),
        (StoreError("it cannot be opened"), False),
    ],
)
def test_only_damage_has_the_database_opened_again(
    tmp_path: Path,
    examined: list[Path],
    error: StoreError,
    *,
    kept: bool,
) -> None:
    """A lock or a full disk says nothing against what is open; the files are read whole once per start."""

    async def scene() -> None:
        storage = Storage(tmp_path / "tuner.db", pause_s=0.0)
        await add(storage)
        before = await storage.run(lambda books: books)

        def fails(_: module.Repositories) -> None:
            raise error

        with pytest.raises(type(error)):
            await storage.run(fails)
        assert (await storage.run(lambda books: books) is before) == kept
        await storage.close()

    play(scene())
    assert examined == [tmp_path / "tuner.db"]


def test_the_database_is_silent_only_while_it_works(tmp_path: Path) -> None:
    """How long an action takes is seen while it does; a queue of quick ones is no silence."""

    async def scene() -> None:
        storage = Storage(tmp_path / "tuner.db")
        await add(storage)
        assert storage.silent_s == 0.0
        let, begun = threading.Event(), threading.Event()

        def hang(_: module.Repositories) -> None:
            begun.set()
            assert let.wait(PATIENCE_S)

        hanging = asyncio.create_task(storage.run(hang))
        await asyncio.to_thread(begun.wait, PATIENCE_S)
        assert storage.silent_s > 0.0
        let.set()
        await hanging
        assert storage.silent_s == 0.0
        await storage.close()

    play(scene())
