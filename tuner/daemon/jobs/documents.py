"""Jobs and their events as JSON has them."""

from collections.abc import Mapping, Sequence
from typing import Any

from tuner.model.jobs import JobEvent, JobRecord


def job_document(job: JobRecord) -> dict[str, Any]:
    """A job as JSON has it; the order's fields stand beside its own."""
    order = job.spec
    return {
        "id": job.id,
        "kind": order.kind.value,
        "device": job.device,
        "wanted_device": order.device,
        "gpu": job.gpu,
        "workloads": list(order.workloads),
        "objective": order.objective,
        "policy": order.policy,
        "clocks": order.clocks,
        "options": dict(order.options),
        "origin": job.origin.value,
        "priority": job.priority,
        "state": job.state.value,
        "reason": job.reason,
        "run": job.run,
        "attempts": job.attempts,
        "trials": job.trials,
        "submitter": job.submitter,
        "created_at": job.created_at,
        "started_at": job.started_at,
        "ended_at": job.ended_at,
    }


def jobs_document(jobs: Sequence[JobRecord]) -> dict[str, Any]:
    """A list of jobs as JSON has it."""
    return {"jobs": [job_document(job) for job in jobs]}


def event_document(event: JobEvent) -> Mapping[str, Any]:
    """An event as JSON has it."""
    return {"id": event.id, "job": event.job, "kind": event.kind, "at": event.at, "data": event.data}
