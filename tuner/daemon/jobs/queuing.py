"""What the daemon wants done without being asked: sets of daemon.toml, and what keeps answers true."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

from tuner.catalog import Catalog
from tuner.daemon.desk import NotNowError
from tuner.daemon.jobs.board import Board, same_order
from tuner.daemon.jobs.orders import checked, with_defaults
from tuner.daemon.settings.tables import SetTable, Settings
from tuner.errors import InputError, StoreError
from tuner.jobs import Job, Kind, Order, Origin

_LOG = logging.getLogger(__name__)


def orders_of(group: SetTable, settings: Settings, catalog: Catalog, devices: Sequence[str]) -> list[Order]:
    """The orders of a set, one per device.

    Args:
        group: of daemon.toml.
        settings: for what the set leaves open.
        catalog: of the kernels.
        devices: that the daemon tunes on.

    Raises:
        InputError: it names what is not there.
    """
    tuning = settings.tuning
    options = {"max_slowdown": group.max_slowdown, "runs_per_day": group.runs_per_day}
    chosen = {name: value for name, value in options.items() if value is not None}
    order = Order(
        workloads=group.workloads,
        objective=group.objective or tuning.objective,
        policy=group.policy or tuning.policy,
        clocks=group.clocks or tuning.clocks,
        options=with_defaults(chosen, tuning),
    )
    return [checked(replace(order, device=device), catalog, devices) for device in group.devices or devices]


def missing(
    settings: Settings, catalog: Catalog, devices: Sequence[str], known: Iterable[Job]
) -> tuple[list[tuple[Order, float]], list[str]]:
    """Orders of sets that were never queued, with their priority; and what is wrong with sets.

    Args:
        settings: with the sets.
        catalog: of the kernels.
        devices: that the daemon tunes on.
        known: jobs that are listed, ended ones too: a set that failed or was cancelled is not tried again
            until it is another one.
    """
    queued = {same_order(job.order) for job in known if job.origin is Origin.SET}
    orders, wrong = [], []
    for group in settings.set:
        try:
            found = orders_of(group, settings, catalog, devices)
        except InputError as error:
            wrong.append(f"set {group.name}: {error}")
            continue
        orders += [(order, group.priority) for order in found if same_order(order) not in queued]
    return orders, wrong


def unwanted(
    settings: Settings, catalog: Catalog, devices: Sequence[str], active: Iterable[Job]
) -> list[int]:
    """Numbers of jobs of sets that are no longer in the settings as they were queued.

    Args:
        settings: with the sets.
        catalog: of the kernels.
        devices: that the daemon tunes on.
        active: jobs that have not ended.
    """
    wanted = set()
    for group in settings.set:
        with contextlib.suppress(InputError):
            wanted |= {same_order(order) for order in orders_of(group, settings, catalog, devices)}
    return [job.id for job in active if job.origin is Origin.SET and same_order(job.order) not in wanted]


class Queuing:
    """Queues what is wanted, once.

    Args:
        board: where jobs go.
        most_waiting: jobs that may wait.
    """

    def __init__(self, board: Board, most_waiting: Callable[[], int]) -> None:
        self._board = board
        self._most_waiting = most_waiting
        self._lock = asyncio.Lock()

    async def queue(self, order: Order, origin: Origin, priority: float) -> Job | None:
        """The job that does what the order asks for, queued now if there was none.

        Returns:
            None where it cannot be queued now; it will be wanted again.
        """
        async with self._lock:
            known = self._board.about(order) if order.kind is Kind.TUNE else self._board.like(order)
            if known is not None:
                return known
            try:
                job = await self._board.add(
                    order, origin=origin, priority=priority, most_waiting=self._most_waiting()
                )
            except (NotNowError, StoreError) as error:
                _LOG.warning("%s is not queued now: %s", " ".join(order.workloads), error)
                return None
        _LOG.info("job %d queued by the daemon (%s): %s", job.id, origin.value, " ".join(order.workloads))
        return job
