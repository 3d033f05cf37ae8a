"""What tuning has cost today on each GPU, and whether there is something left.

What becomes of jobs whose attempts cannot go on: waits that grow, and an end for those that only crash.
"""

import asyncio
import itertools
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import NamedTuple

from tuner.daemon.attempts.messages import Ending
from tuner.daemon.queue.storage import Storage
from tuner.daemon.settings.tables import BudgetTable
from tuner.model.jobs import JobRecord, JobState

_DAYS_AROUND = 7  # read at the start: a wall clock that is put right leaps hardly further
MOST_CRASHES = 4
"""In a row, without a new trial between them: then the job is at fault, and not what happened to it."""

_FIRST_WAIT_S = 2.0  # after an attempt that failed
LONGEST_WAIT_S = 600.0
"""What is mended is noticed after so long at the latest."""

_LONGEST_DOUBLING = 16  # beyond any wait


class Spent(NamedTuple):
    """Of a day and a GPU."""

    seconds: float = 0.0
    joules: float = 0.0


class Budgets:
    """Spending by day and GPU: known here, kept in the database.

    What could not be stored yet counts all the same, and is stored with what comes next. No day is forgotten:
    a wall clock that was wrong for a while comes back to the right one.

    Args:
        storage: where it is kept.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._spent: dict[tuple[str, str], Spent] = {}
        self._unstored: dict[tuple[str, str], Spent] = {}

    async def load(self, day: str, uuids: Iterable[str]) -> None:
        """Read what a day has cost so far, and those around it.

        Args:
            day: local date, ISO 8601.
            uuids: of the devices.

        Raises:
            StoreError: the database cannot be used just now.
        """
        around = range(-_DAYS_AROUND, _DAYS_AROUND + 1)
        days = [(date.fromisoformat(day) + timedelta(days=away)).isoformat() for away in around]
        keys = list(itertools.product(days, uuids))
        found = await self._storage.run(lambda books: [books.ledger.spent(*key) for key in keys])
        self._spent.update((key, Spent(*spent)) for key, spent in zip(keys, found, strict=True))

    def on(self, day: str, uuid: str) -> Spent:
        """What was spent on a GPU on a day."""
        return self._spent.get((day, uuid), Spent())

    def spend(self, uuid: str, day: str, seconds: float, joules: float) -> None:
        """Count what was spent; ``store`` makes it durable."""
        for counts in (self._spent, self._unstored):
            before = counts.get((day, uuid), Spent())
            counts[day, uuid] = Spent(before.seconds + seconds, before.joules + joules)

    async def store(self) -> None:
        """Make durable what was counted.

        Raises:
            StoreError: the database cannot be used just now; what was counted is kept for the next time.
        """
        while self._unstored:
            (day, uuid), spent = self._unstored.popitem()
            try:
                await self._storage.run(
                    lambda books, day=day, uuid=uuid, spent=spent: books.ledger.spend(day, uuid, *spent)  # type: ignore[misc]  # bound at once
                )
            except BaseException:
                more = self._unstored.get((day, uuid), Spent())
                self._unstored[day, uuid] = Spent(spent.seconds + more.seconds, spent.joules + more.joules)
                raise


def exhausted(budget: BudgetTable, spent: Spent) -> str:
    """Why nothing more may be spent today; empty where something may."""
    if budget.seconds_per_day is not None and spent.seconds >= budget.seconds_per_day:
        return f"today's budget of {budget.seconds_per_day:g} s of measuring is used up"
    if budget.joules_per_day is not None and spent.joules >= budget.joules_per_day:
        return f"today's budget of {budget.joules_per_day:g} J of measuring is used up"
    return ""


def until_tomorrow_s(now: datetime) -> float:
    """Seconds to the next local midnight, with summer time."""
    tomorrow = (now + timedelta(days=1)).replace(hour=0, minute=0, second=0, microsecond=0)
    return max(0.0, tomorrow.timestamp() - now.timestamp())


def wait_s(failures: int) -> float:
    """How long to wait after so many failures in a row."""
    return min(_FIRST_WAIT_S * 2.0 ** min(failures - 1, _LONGEST_DOUBLING), LONGEST_WAIT_S)


@dataclass
class _Record:
    """How a job, or all on a device, failed so far.

    Attributes:
        failures: attempts in a row that could not go on.
        crashes: attempts in a row that crashed without a new trial.
        rests_until_s: the loop's time before which it is not tried again.
    """

    failures: int = 0
    crashes: int = 0
    rests_until_s: float = 0.0


class Failures:
    """Of one device; forgotten when the daemon ends: that may have been the reason."""

    def __init__(self) -> None:
        self._jobs: dict[int, _Record] = {}
        self._device = _Record()

    def rests_until_s(self, job: JobRecord) -> float:
        """The loop's time before which a job that failed is not tried again."""
        return max(self._jobs.get(job.id, _Record()).rests_until_s, self._device.rests_until_s)

    def forget(self, job: JobRecord) -> None:
        """It has come to an end."""
        self._jobs.pop(job.id, None)

    def forget_jobs(self) -> None:
        """None is left."""
        self._jobs.clear()

    def judge(self, job: JobRecord, ending: Ending, why: str, trials: int) -> tuple[JobState, str]:
        """The state that follows from an ending, and the reason for people.

        Args:
            job: that was tried.
            ending: of the attempt.
            why: it was stopped; empty where it ended by itself.
            trials: new ones that it stored.
        """
        if ending.status in ("finished", "limited"):
            self.forget(job)
            self._device = _Record()
            return JobState.FINISHED, ending.message
        if ending.status == "refused":
            self.forget(job)
            return JobState.FAILED, ending.message
        if ending.status == "busy" or why:
            self._device = _Record()
            return JobState.QUEUED, f"the GPU is busy: {ending.message}" if ending.status == "busy" else why
        return self._failed(job, ending, trials)

    def _failed(self, job: JobRecord, ending: Ending, trials: int) -> tuple[JobState, str]:
        """What becomes of a job whose attempt could not go on."""
        now_s = asyncio.get_running_loop().time()
        record = self._jobs.setdefault(job.id, _Record())
        if trials:  # each attempt that gets on is one less: that comes to an end by itself
            record.failures = record.crashes = 0
        record.failures += 1
        record.crashes += ending.status == "crashed"
        if record.crashes >= MOST_CRASHES:
            self.forget(job)
            return JobState.FAILED, f"{record.crashes} attempts crashed, the last: {ending.message}"
        record.rests_until_s = now_s + wait_s(record.failures)
        if ending.status == "unavailable":  # that concerns the others, too
            self._device.failures += 1
            self._device.rests_until_s = now_s + wait_s(self._device.failures)
        return JobState.QUEUED, f"{ending.message}; tried again in {wait_s(record.failures):.0f} s"
