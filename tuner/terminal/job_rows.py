"""The jobs: those that run, those that wait and why, and those that have ended."""

from tuner.client.values import Job
from tuner.model.jobs import JobState
from tuner.report.job_words import asked_for, priority_of, search_of
from tuner.report.words import moment
from tuner.terminal.listing import Column, Listing, Row, row
from tuner.terminal.state import LiveState

_RANKS = {
    state.value: rank for rank, state in enumerate((JobState.RUNNING, JobState.QUEUED, JobState.PAUSED))
}
_LEAST = 14  # characters of the column that is cut
_COLUMNS = (
    Column("job", right=True),
    Column("state"),
    Column("workloads", least=_LEAST),
    Column("search", rank=2),
    Column("device", rank=1),
    Column("trials", right=True),
    Column("submitted", rank=3),
)


def job_listing(state: LiveState) -> Listing:
    """A row per job: those that run, then those that wait, then the newest that have ended."""
    jobs = sorted(state.jobs.values(), key=lambda job: (_RANKS.get(job.state, len(_RANKS)), -job.id))
    counts = [
        f"{sum(job.state == one for job in jobs)} {one}"
        for one in _RANKS
        if any(job.state == one for job in jobs)
    ]
    rows = tuple(_job(job, state) for job in jobs)
    title = f"jobs: {', '.join(counts)}" if counts else "jobs"
    return Listing(title, _COLUMNS, rows, empty="no job yet; `tuner submit` queues one")


def _job(job: Job, state: LiveState) -> Row:
    search = state.searches.get(job.id)
    trials = max(job.trials, 0 if search is None else len(search.trials))
    run = job.run if search is None or job.run is not None else search.run
    cells = (
        str(job.id),
        job.state,
        " + ".join(job.workloads),
        search_of(job),
        job.device or "any",
        f"{trials:,}",
        moment(job.created_at),
    )
    values = (
        job.id,
        _RANKS.get(job.state, len(_RANKS)),
        cells[2],
        cells[3],
        job.device,
        trials,
        job.created_at,
    )
    style = "best" if job.state == JobState.RUNNING.value else ""
    return row(
        job.id, cells, values, _details(job, run), "bad" if job.state == JobState.FAILED.value else style
    )


def _details(job: Job, run: int | None) -> str:
    parts = [f"job {job.id} {job.state}{f' ({job.reason})' if job.reason else ''}"]
    parts += [search_of(job), f"{asked_for(job)}, {moment(job.created_at)}", f"priority {priority_of(job)}"]
    return "; ".join([*parts, *([] if run is None else [f"run {run}"])])
