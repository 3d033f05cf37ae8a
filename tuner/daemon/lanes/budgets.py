"""What tuning has cost today on each GPU, and whether there is something left."""

import itertools
from collections.abc import Iterable
from datetime import date, datetime, timedelta
from typing import NamedTuple

from tuner.daemon.jobs.storage import Storage
from tuner.daemon.settings.tables import BudgetTable

_DAYS_AROUND = 7  # read at the start: a wall clock that is put right leaps hardly further


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
