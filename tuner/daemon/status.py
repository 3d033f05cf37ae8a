"""How the daemon stands, as JSON has it.

What a use of an answer saves against the default, as its run has measured both.
"""

import math
from collections.abc import Collection, Iterable, Mapping
from datetime import datetime
from typing import Any, NamedTuple

from tuner.daemon.devices.admission import Opening, opening
from tuner.daemon.devices.budgets import Budgets
from tuner.daemon.devices.queue import Lane
from tuner.daemon.devices.queues import Lanes
from tuner.daemon.metrics import Snapshot
from tuner.daemon.settings.tables import Settings
from tuner.model import DeviceIdentity
from tuner.model.jobs import JobRecord, JobState
from tuner.model.objective import COVERAGE
from tuner.report.words import moment


def sentence(lanes: Lanes, jobs: Iterable[JobRecord]) -> str:
    """What is done just now, in a few words."""
    waiting = sum(job.state is JobState.QUEUED for job in jobs)
    work = f"job {', '.join(map(str, lanes.running))} runs" if lanes.running else "no job runs"
    holds = "; ".join(lanes.holds)
    return f"{work}, {waiting} wait{f' ({holds})' if holds else ''}"


def snapshot(jobs: Iterable[JobRecord], answers: tuple[int, int], followers: int) -> Snapshot:
    """What metrics tell of this moment.

    Args:
        jobs: that have not ended.
        answers: how many are fresh, and how many stale.
        followers: of jobs.
    """
    states = [job.state for job in jobs]
    return Snapshot(
        jobs={state: states.count(state) for state in set(states)},
        waiting=states.count(JobState.QUEUED),
        fresh=answers[0],
        stale=answers[1],
        followers=followers,
    )


def queue_document(jobs: Iterable[JobRecord]) -> dict[str, int]:
    """How many jobs that have not ended are in each state."""
    states = [job.state for job in jobs]
    return {state.value: states.count(state) for state in JobState if not state.ended}


def windows_document(settings: Settings, now: datetime) -> dict[str, Any]:
    """Whether tuning is allowed now, and when that changes; ``summary`` says it to people."""
    allowed = opening(settings.window, now)
    changes_at = None if allowed.changes_at is None else allowed.changes_at.isoformat()
    return {
        "open": allowed.open,
        "changes_at": changes_at,
        "count": len(settings.window),
        "summary": _summary(allowed, len(settings.window)),
    }


def _summary(allowed: Opening, count: int) -> str:
    if not count:
        return "none, tuning is allowed always"
    when = "for ever" if allowed.changes_at is None else f"until {moment(allowed.changes_at)}"
    return f"{'open' if allowed.open else 'closed'} {when}"


def device_document(
    identity: DeviceIdentity, lane: Lane, budgets: Budgets, settings: Settings, now: datetime
) -> dict[str, Any]:
    """A device, what is done on it, and what that has cost today."""
    spent = budgets.on(now.date().isoformat(), identity.uuid)
    return {
        **vars(identity),
        "job": None if lane.running is None else lane.running.id,
        "holds": lane.holds,
        "spent_today_s": spent.seconds,
        "spent_today_j": spent.joules,
        "budget_s": settings.budget.seconds_per_day,
        "budget_j": settings.budget.joules_per_day,
    }


def troubles(named: Mapping[str, Collection[str]]) -> list[str]:
    """All that is wrong, for people: what it concerns, and what it is."""
    return [f"{what}: {trouble}" for what, found in named.items() for trouble in found if trouble]


class Saving(NamedTuple):
    """Of one use; the uncertainty is half of the 95 % interval."""

    joules: float
    uncertainty_j: float


def saving(answer: Mapping[str, Any] | None) -> Saving | None:
    """What one use saves; None where joules of both were not measured.

    Args:
        answer: ``Reply.answer``.
    """
    best, default = (answer or {}).get("best") or {}, (answer or {}).get("default") or {}
    best_j, default_j = best.get("energy_j"), default.get("energy_j")
    if best_j is None or default_j is None:
        return None
    unsure = [one.get("energy_j_uncertainty") or 0.0 for one in (best, default)]
    return Saving(default_j - best_j, COVERAGE * math.hypot(*unsure))
