"""All answers that a daemon has: those of its jobs, each asked for once."""

from collections.abc import Iterator
from dataclasses import dataclass

from tuner.client.client import Client
from tuner.client.values import Best, Job
from tuner.model.errors import DaemonUnavailableError, InputError

MOST_ANSWERS = 500
"""That are asked for, the newest first."""

_JOBS_AT_ONCE = 500


@dataclass(frozen=True)
class KnownAnswer:
    """What a daemon says of workloads that it has tuned.

    Attributes:
        workloads: that run together.
        objective: without its slowdown limit.
        device: empty for the daemon's first.
        best: what it serves; None where it cannot.
        why: that it cannot, such as a kernel that is gone.
    """

    workloads: tuple[str, ...]
    objective: str
    device: str
    best: Best | None
    why: str = ""


def known_answers(client: Client) -> list[KnownAnswer]:
    """Answers of the workloads of all jobs that were tuned, the newest first; asking counts as no use.

    Raises:
        DaemonUnavailableError, DaemonError: see ``Client``.
    """
    found: dict[tuple[object, ...], KnownAnswer] = {}
    for job in _tuned(client):
        limit = job.options.get("max_slowdown")
        key = (tuple(sorted(job.workloads)), job.objective, job.device, limit)
        if key not in found and len(found) < MOST_ANSWERS:
            found[key] = _answer(client, job, limit if isinstance(limit, int | float) else None)
    return list(found.values())


def _tuned(client: Client) -> Iterator[Job]:
    before: int | None = None
    while jobs := client.jobs(limit=_JOBS_AT_ONCE, before=before):
        yield from (job for job in jobs if job.kind == "tune" and job.run is not None)
        before = jobs[-1].id


def _answer(client: Client, job: Job, max_slowdown: float | None) -> KnownAnswer:
    best, why = None, ""
    try:
        best = client.best(
            *job.workloads, objective=job.objective, device=job.device, max_slowdown=max_slowdown, count=0
        )
    except DaemonUnavailableError:
        raise
    except InputError as error:
        why = str(error)
    return KnownAnswer(job.workloads, job.objective, job.device, best, why)
