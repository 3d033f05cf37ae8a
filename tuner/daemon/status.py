"""The state of the daemon as JSON has it."""

import os
import time
from collections import Counter
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import cast

from tuner.client.answer_values import DeviceStatus, HostDocument, Status, Windows
from tuner.daemon.devices.admission import window_status
from tuner.daemon.devices.queue import DeviceQueues
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.shares import ABSENT, Budgets, Placement, Shares
from tuner.daemon.scrub import Scrub
from tuner.daemon.settings import Settings
from tuner.daemon.state import State
from tuner.database.storage import Storage
from tuner.model.jobs import ACTIVE, Job, JobState
from tuner.model.units import moment
from tuner.model.version import VERSION


class ServiceStatus:
    """The state of a service, as its parts have it now."""

    def __init__(
        self,
        state: State,
        *,
        storage: Storage,
        board: Board,
        shares: Shares,
        scrub: Scrub,
        budgets: Budgets,
        wall: Callable[[], datetime],
    ) -> None:
        self._state = state
        self._storage = storage
        self._board = board
        self._shares = shares
        self._scrub = scrub
        self._budgets = budgets
        self._wall = wall
        self._begun_at, self._begun_s = wall(), time.monotonic()

    def document(self, queues: DeviceQueues, followers: int) -> Status:
        """All of it, as ``GET /v1/status`` has it."""
        document = self.steady()
        document["uptime_s"] = round(time.monotonic() - self._begun_s)
        document["devices"] = self.devices(queues)
        document["host"] = self._host()
        document["followers"] = followers
        return document

    def steady(self) -> Status:
        """Return the part of the status that does not change by itself, without the devices."""
        counts = Counter(job.state for job in self._board.jobs)
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "begun_at": self._begun_at.isoformat(timespec="seconds"),
            **self._state.places,
            "notices": [*self._state.notices, *self._scrub.kept_aside, *self._scrub.notices],
            "troubles": [
                f"{subject}: {trouble}"
                for subject, troubles in self.troubles().items()
                for trouble in troubles
                if trouble
            ],
            "not_understood": list(self._board.not_understood),
            "queue": {state.value: counts[state] for state in ACTIVE},
            "users": self._shares.table(self._board.jobs),
            "windows": windows_document(self._state.settings, self._wall()),
        }

    def devices(self, queues: DeviceQueues) -> list[DeviceStatus]:
        """The devices."""
        budget, today = self._state.settings.budget, self._wall().date().isoformat()
        documents: list[DeviceStatus] = []
        for device, identity in self._state.identities.items():
            queue, spent = queues[device], self._budgets.on(today, identity.uuid)
            documents.append(
                {
                    **cast(DeviceStatus, vars(identity)),
                    "job": None if queue.running is None else queue.running.id,
                    "holds": queue.block_reason,
                    "spent_today_s": spent.seconds,
                    "spent_today_j": spent.joules,
                    "budget_s": budget.seconds_per_day,
                    "budget_j": budget.joules_per_day,
                }
            )
        return documents

    def _host(self) -> HostDocument:
        budget = self._state.settings.budget
        spent = self._budgets.of_host(self._wall().date().isoformat())
        return {
            "spent_today_s": spent.seconds,
            "spent_today_j": spent.joules,
            "budget_s": budget.host_seconds_per_day,
            "budget_j": budget.host_joules_per_day,
        }

    def troubles(self) -> dict[str, list[str]]:
        """Return the present problems by subject."""
        return {
            "database": [self._storage.trouble],
            "jobs": [
                *absent_devices(self._board.jobs, self._board.placement),
                *self._board.not_understood,
            ],
            **self._state.troubles,
        }


def windows_document(settings: Settings, now: datetime) -> Windows:
    """Return the state of the whole host's windows, and its next change; ``summary`` is for people.

    Of windows for some devices, the devices tell.
    """
    windows = [window for window in settings.window if not window.devices]
    status = window_status(windows, now)
    until = "for ever" if status.changes_at is None else f"until {moment(status.changes_at)}"
    summary = f"{'open' if status.open else 'closed'} {until}"
    return {
        "open": status.open,
        "changes_at": None if status.changes_at is None else status.changes_at.isoformat(),
        "count": len(windows),
        "summary": summary if windows else "none, tuning is allowed always",
    }


def absent_devices(jobs: Iterable[Job], placement: Placement) -> list[str]:
    """Devices that jobs wait for and that are absent, for people."""
    queued = (placement.absence(job) for job in jobs if job.state is JobState.QUEUED)
    counts = Counter(absence.removesuffix(ABSENT) for absence in queued if absence)
    return [
        f"{count} {'wait' if count > 1 else 'waits'} for {missed}, which{ABSENT}"
        for missed, count in sorted(counts.items())
    ]
