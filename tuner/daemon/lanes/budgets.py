"""What tuning has cost today on each GPU, and whether there is something left."""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import NamedTuple

from tuner.daemon.jobs.storage import Storage
from tuner.daemon.settings.tables import BudgetTable


class Spent(NamedTuple):
    """Of a day and a GPU."""

    seconds: float = 0.0
    joules: float = 0.0


class Budgets:
    """Spending by day and GPU: known here, kept in the database.

    What could not be stored yet counts all the same, and is stored with what comes next.

    Args:
        storage: where it is kept.
    """

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self._day = ""
        self._spent: dict[str, Spent] = {}
        self._unstored: dict[tuple[str, str], Spent] = {}

    async def load(self, day: str, uuids: Iterable[str]) -> None:
        """Read what a day has cost so far.

        Args:
            day: local date, ISO 8601.
            uuids: of the devices.

        Raises:
            StoreError: the database cannot be used just now.
        """
        for uuid in uuids:
            seconds, joules = await self._storage.run(
                lambda books, uuid=uuid: books.ledger.spent(day, uuid)  # type: ignore[misc]  # bound at once
            )
            self._spent[uuid] = Spent(seconds, joules)
        self._day = day

    def today(self, uuid: str, day: str) -> Spent:
        """What was spent on a GPU on a day, which is today's."""
        if day != self._day:
            self._day, self._spent = day, {}
        return self._spent.get(uuid, Spent())

    def spend(self, uuid: str, day: str, seconds: float, joules: float) -> None:
        """Count what was spent; ``store`` makes it durable."""
        before = self.today(uuid, day)
        self._spent[uuid] = Spent(before.seconds + seconds, before.joules + joules)
        waiting = self._unstored.get((day, uuid), Spent())
        self._unstored[day, uuid] = Spent(waiting.seconds + seconds, waiting.joules + joules)

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
