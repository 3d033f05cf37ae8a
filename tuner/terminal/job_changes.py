"""What a user may want done with a job: the question before, and what the daemon says to it."""

from tuner.client.client import Client
from tuner.client.values import Job
from tuner.model.errors import TunerError
from tuner.model.jobs import JobState
from tuner.untrusted.text import plain_line

CANCEL, PAUSE, RESUME = "cancel", "pause", "resume"

CONSEQUENCES = {
    CANCEL: "It ends; the trials that it has stored stay.",
    PAUSE: "It stops until somebody resumes it, and then goes on where it was.",
    RESUME: "It is queued again, and goes on where it was.",
}


def pause_or_resume(job: Job | None) -> str:
    """What the one key for both means."""
    return RESUME if job is not None and job.state == JobState.PAUSED.value else PAUSE


def why_not(verb: str, job: Job | None) -> str:
    """Why nothing can be done; empty where the user is to be asked."""
    if job is None:
        return f"no job to {verb}: choose one in pane 2"
    return f"no job to {verb}: job {job.id} has {job.state} already" if job.ended else ""


def question(verb: str, job: Job) -> str:
    """What the user is asked."""
    return plain_line(f"{verb.capitalize()} job {job.id} ({' + '.join(job.workloads)})?")


def changed(client: Client, verb: str, number: int) -> tuple[str, bool]:
    """Have the daemon change a job.

    Returns:
        What became of it, and whether it was done.
    """
    changes = {CANCEL: client.cancel, PAUSE: client.pause, RESUME: client.resume}
    try:
        job = changes[verb](number)
    except TunerError as error:
        return str(error), False
    return f"job {job.id} is {job.state}", True
