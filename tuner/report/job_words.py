"""What a job of the daemon is, in words."""

import pwd
from typing import TYPE_CHECKING

from tuner.model.jobs import OWN, Origin

if TYPE_CHECKING:
    from tuner.client.values import Job


_ASKED_BY = {
    Origin.CLIENT.value: "submitted",
    Origin.SET.value: "a set of daemon.toml",
    Origin.STALE.value: "the daemon, as an answer went stale",
    Origin.DRIFT.value: "the daemon, as a sample drifted",
    Origin.REQUEST.value: "the daemon, after a question",
    Origin.CHECK.value: "the daemon, to check an answer",
}
_OWN = frozenset(origin.value for origin in OWN)


def asked_for(job: "Job") -> str:
    """Who asked for a job, in words; what a newer daemon says is shown as it is."""
    who = _ASKED_BY.get(job.origin, job.origin)
    return who if job.submitter is None else f"{who}, {_user(job.submitter)}"


def _user(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return f"user {uid}"


def priority_of(job: "Job") -> str:
    """The daemon's own work has one that only says what of it goes first."""
    return "own" if job.origin in _OWN else f"{job.priority:g}"


def search_of(job: "Job") -> str:
    """Objective, limit and clocks of a job, as far as they were chosen."""
    slower = job.options.get("max_slowdown")
    limit = "" if slower is None else f", at most {100 * slower:g} % slower"
    clocks = "" if job.clocks == "off" else f", clocks {job.clocks}"
    how = f"verify, else {job.policy}" if job.options.get("verify") else job.policy
    return f"{job.objective}{limit}, {how}{clocks}"
