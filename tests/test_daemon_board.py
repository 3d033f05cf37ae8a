"""The board of jobs and the database stay one, whoever gives up waiting."""

import asyncio
import contextlib
import threading
from collections.abc import AsyncIterator, Callable, Coroutine
from pathlib import Path
from typing import Any, TypeVar

import pytest
from service_rig import DEVICE, PATIENCE_S, WORKLOAD, plays, working

from tuner.daemon.interface import NoSuchJobError, NotNowError
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.events import Subscriptions
from tuner.database.storage import Repositories, Storage
from tuner.model.jobs import Job, JobSpec, JobState, Origin

T = TypeVar("T")
ORDER = JobSpec((WORKLOAD,), device=DEVICE)


class HeldStorage(Storage):
    """A database whose thread has done what it was asked for, and goes no further until it is let go."""

    held = False

    def __init__(self, path: Path) -> None:
        super().__init__(path)
        self.done = asyncio.Event()
        self.go = threading.Event()

    async def run(self, action: Callable[[Repositories], T]) -> T:
        if not self.held:
            return await super().run(action)
        loop = asyncio.get_running_loop()

        def slow(books: Repositories) -> T:
            value = action(books)
            loop.call_soon_threadsafe(self.done.set)
            assert self.go.wait(PATIENCE_S)
            return value

        return await super().run(slow)


@contextlib.asynccontextmanager
async def boards(folder: Path) -> AsyncIterator[tuple[Board, HeldStorage]]:
    """A board over a database that can be held."""
    storage = HeldStorage(folder / "tuner.db")
    board = Board(storage, Subscriptions(), lambda _: None)
    await board.load()
    try:
        yield board, storage
    finally:
        await storage.close()


async def cut_short(caller: Coroutine[Any, Any, Job], board: Board, storage: HeldStorage) -> None:
    """Cancel a caller when the database has done his work, and before he hears of it."""
    storage.done.clear()
    storage.go.clear()
    storage.held = True
    task = asyncio.create_task(caller)
    await storage.done.wait()
    task.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await task
    assert task.cancelled()
    storage.held = False
    storage.go.set()
    await board.settled()


@plays
async def test_who_gives_up_waiting_parts_nothing(tmp_path: Path) -> None:
    """What is in the database is on the board, in the same state, also where the caller was cancelled."""
    async with boards(tmp_path) as (board, storage):
        await cut_short(board.add(ORDER, origin=Origin.CLIENT), board, storage)
        (job,) = board.jobs
        assert [job] == await storage.run(lambda books: books.jobs.jobs())
        await cut_short(board.change(job.id, JobState.CANCELLED), board, storage)
        (stored,) = await storage.run(lambda books: books.jobs.jobs())
        assert stored.state is JobState.CANCELLED
        assert not board.jobs


@plays
async def test_what_the_database_knows_better_is_read_again(tmp_path: Path) -> None:
    """A change that the database refuses is refused, and the job is known from then on as it is there."""
    async with boards(tmp_path) as (board, storage):
        job = await board.add(ORDER, origin=Origin.CLIENT)
        await storage.run(lambda books: books.jobs.change(job.id, JobState.CANCELLED))
        with pytest.raises(NotNowError, match="cancelled"):
            await board.change(job.id, JobState.RUNNING, of=(JobState.QUEUED,), started_on="sim:k40c")
        assert not board.jobs
        assert board.find(ORDER) is None


@plays
async def test_a_job_that_ended_unheard_holds_up_no_other(tmp_path: Path) -> None:
    """The lane goes on with the next job at once, and who follows the ended one hears of its end."""
    async with working(tmp_path) as rig:
        await rig.submit(2.0)
        attempt = await rig.attempts.get()
        ended, other = await rig.submit(1.0), await rig.submit()
        told = asyncio.create_task(rig.told(ended.id))
        await asyncio.sleep(0.0)
        await rig.storage.run(lambda books: books.jobs.change(ended.id, JobState.CANCELLED, reason="unheard"))
        attempt.end()
        assert (await rig.attempts.get()).spec.job == other.id
        assert await told == [("queued", ""), ("cancelled", "unheard")]


def test_an_odd_job_is_left_alone(tmp_path: Path) -> None:
    """The daemon starts whatever a job says, names it, and works on with the others."""

    async def test() -> None:
        async with boards(tmp_path) as (board, storage):
            for _ in range(2):
                await board.add(ORDER, origin=Origin.CLIENT)

            def spoil(books: Repositories) -> None:
                books.database.write(
                    lambda change: change.execute(
                        "UPDATE jobs SET ordered = replace(ordered, '\"kind\"', '\"oind\"') WHERE id = 1"
                    )
                )

            await storage.run(spoil)
            again = Board(storage, Subscriptions(), lambda _: None)
            await again.load()

            assert [job.id for job in again.jobs] == [2]
            assert "job 1 is not understood" in again.not_understood[0]
            with pytest.raises(NoSuchJobError, match="job 1 is not understood"):
                await again.change(1, JobState.CANCELLED)
            assert (await again.change(2, JobState.CANCELLED)).state is JobState.CANCELLED

    asyncio.run(asyncio.wait_for(test(), PATIENCE_S))
