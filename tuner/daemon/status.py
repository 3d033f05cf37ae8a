"""The state of the daemon as JSON has it."""

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping
from datetime import datetime
from typing import Any

from tuner.daemon.devices.admission import Budgets, WindowStatus, window_status
from tuner.daemon.devices.queue import DeviceQueue, DeviceQueues
from tuner.daemon.jobs.board import Board
from tuner.daemon.jobs.shares import ABSENT, Placement, Shares, UserShare
from tuner.daemon.metrics import Gauges
from tuner.daemon.scrub import Scrub
from tuner.daemon.settings import Settings
from tuner.daemon.state import State
from tuner.database.storage import Storage
from tuner.model.jobs import ACTIVE, DeviceIdentity, Job, JobState
from tuner.model.units import moment
from tuner.model.version import VERSION


class ServiceStatus:
    """The state of a service, as its parts have it now.

    Args:
        state: settings and devices.
        storage: the database.
        board: the jobs.
        shares: of users.
        scrub: what became of damaged rows.
        budgets: what was spent.
        wall: local time.
    """

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

    def document(self, queues: DeviceQueues, followers: int) -> dict[str, Any]:
        """All of it, as ``GET /v1/status`` has it."""
        return {
            **self.steady(),
            "uptime_s": round(time.monotonic() - self._begun_s),
            "devices": self.devices(queues),
            "host": host_document(self._budgets, self._state.settings, self._wall()),
            "followers": followers,
        }

    def steady(self) -> dict[str, Any]:
        """Return the part of the status that does not change by itself, without the devices."""
        return {
            "version": VERSION,
            "pid": os.getpid(),
            "begun_at": self._begun_at.isoformat(timespec="seconds"),
            **self._state.places,
            "notices": [*self._state.notices, *self._scrub.kept_aside, *self._scrub.notices],
            "troubles": _sentences(self.troubles()),
            "not_understood": list(self._board.not_understood),
            "queue": queue_document(self._board.jobs),
            "users": shares_document(self._shares.table(self._board.jobs)),
            "windows": windows_document(self._state.settings, self._wall()),
        }

    def devices(self, queues: DeviceQueues) -> list[dict[str, Any]]:
        """The devices."""
        settings, now = self._state.settings, self._wall()
        return [
            device_document(identity, queues[device], self._budgets, settings, now)
            for device, identity in self._state.identities.items()
        ]

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


def summary(queues: DeviceQueues, jobs: Iterable[Job]) -> str:
    """The work of this moment, in a few words."""
    waiting = sum(job.state is JobState.QUEUED for job in jobs)
    work = f"job {', '.join(map(str, queues.running))} runs" if queues.running else "no job runs"
    reasons = "; ".join(queues.block_reasons)
    return f"{work}, {waiting} wait{f' ({reasons})' if reasons else ''}"


def gauges(
    jobs: Iterable[Job],
    answers: tuple[int, int],
    followers: int,
    by_subject: Mapping[str, Collection[str]],
) -> Gauges:
    """The metrics of this moment.

    Args:
        jobs: that have not ended.
        answers: how many are fresh, and how many stale.
        followers: subscriptions to jobs.
        by_subject: what is wrong.
    """
    counts = Counter(job.state for job in jobs)
    wrong = {subject: sum(map(bool, found)) for subject, found in by_subject.items()}
    return Gauges(counts, counts[JobState.QUEUED], *answers, followers, wrong)


def queue_document(jobs: Iterable[Job]) -> dict[str, int]:
    """Return the number of jobs in each state, without those that have ended."""
    counts = Counter(job.state for job in jobs)
    return {state.value: counts[state] for state in ACTIVE}


def shares_document(shares: Iterable[UserShare]) -> list[dict[str, Any]]:
    """Return waiting jobs, running jobs and recent device seconds of each user."""
    return [
        {"name": one.user, "waiting": one.waiting, "running": one.running, "used_lately_s": one.device_s}
        for one in shares
    ]


def windows_document(settings: Settings, now: datetime) -> dict[str, Any]:
    """Return the state of the whole host's windows, and its next change; ``summary`` is for people.

    Of windows for some devices, the devices tell.
    """
    windows = [window for window in settings.window if not window.devices]
    status = window_status(windows, now)
    changes_at = None if status.changes_at is None else status.changes_at.isoformat()
    return {
        "open": status.open,
        "changes_at": changes_at,
        "count": len(windows),
        "summary": _windows_summary(status, len(windows)),
    }


def _windows_summary(status: WindowStatus, count: int) -> str:
    if not count:
        return "none, tuning is allowed always"
    when = "for ever" if status.changes_at is None else f"until {moment(status.changes_at)}"
    return f"{'open' if status.open else 'closed'} {when}"


def device_document(
    identity: DeviceIdentity, queue: DeviceQueue, budgets: Budgets, settings: Settings, now: datetime
) -> dict[str, Any]:
    """A device, its job, and what that has cost today."""
    spent = budgets.on(now.date().isoformat(), identity.uuid)
    return {
        **vars(identity),
        "job": None if queue.running is None else queue.running.id,
        "holds": queue.block_reason,
        "spent_today_s": spent.seconds,
        "spent_today_j": spent.joules,
        "budget_s": settings.budget.seconds_per_day,
        "budget_j": settings.budget.joules_per_day,
    }


def host_document(budgets: Budgets, settings: Settings, now: datetime) -> dict[str, Any]:
    """Return today's cost of measuring on all devices together, and its budget."""
    spent = budgets.of_host(now.date().isoformat())
    return {
        "spent_today_s": spent.seconds,
        "spent_today_j": spent.joules,
        "budget_s": settings.budget.host_seconds_per_day,
        "budget_j": settings.budget.host_joules_per_day,
    }


def absent_devices(jobs: Iterable[Job], placement: Placement) -> list[str]:
    """Devices that jobs wait for and that are absent, for people."""
    queued = (placement.absence(job) for job in jobs if job.state is JobState.QUEUED)
    counts = Counter(absence.removesuffix(ABSENT) for absence in queued if absence)
    return [
        f"{count} {'wait' if count > 1 else 'waits'} for {missed}, which{ABSENT}"
        for missed, count in sorted(counts.items())
    ]


def _sentences(by_subject: Mapping[str, Collection[str]]) -> list[str]:
    """Everything that is wrong, for people."""
    return [f"{subject}: {trouble}" for subject, found in by_subject.items() for trouble in found if trouble]
