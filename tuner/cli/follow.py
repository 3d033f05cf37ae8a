"""``tuner follow``: show the progress of a job of the daemon, and its answer."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from tuner.cli import completion
from tuner.cli.output import console, echo, json_option, write_json
from tuner.cli.remote import document_of, one_line, socket_option, when_started
from tuner.model.errors import DaemonError, InputError, RunInterrupted

if TYPE_CHECKING:
    from tuner.client.client import Client
    from tuner.client.values import Best, Event, Job
    from tuner.report.progress import RunProgress


_FINISHED = "finished"  # of tuner.model.jobs.JobState, which `tuner --help` need not import


@click.command(short_help="Show the progress of a job, and its answer.")
@click.argument("number", type=click.IntRange(min=1), metavar="JOB", shell_complete=completion.jobs)
@socket_option
@json_option
def follow(number: int, *, socket: str | None, json_path: str | None) -> None:
    """Show the progress of a JOB of the daemon until it has ended, then its answer.

    Ctrl-C stops following; the job goes on. Exit code 0 when the job has finished, 1 when it failed or was
    cancelled.
    """
    client, job = when_started(socket, lambda daemon: daemon.job(number))
    sys.exit(follow_to_the_end(client, job, json_path))


def follow_to_the_end(client: "Client", job: "Job", json_path: str | None) -> int:
    """Show a job until it has ended, and its answer.

    Returns:
        The exit code: 0 for a finished job.
    """
    from tuner.model.objective import UNITS
    from tuner.report.progress import RunProgress
    from tuner.report.words import MODELLED

    try:
        label = MODELLED if _is_modelled(client, job) else ""
        # an objective of a newer daemon is shown without its unit rather than not at all
        known = job.objective if job.objective in UNITS else "time"
        with RunProgress(known, label, tells_trials=True) as progress:
            for event in client.follow(job.id):
                _tell(event, progress)
    except KeyboardInterrupt:
        echo(
            f"stopped following; job {job.id} goes on (`tuner follow {job.id}` shows it again,"
            f" `tuner cancel {job.id}` ends it)",
            err=True,
        )
        return RunInterrupted.exit_code
    job = client.job(job.id)
    answer = _answer(client, job)
    if json_path is not None:
        write_json(json_path, {"job": document_of(job), "answer": None if answer is None else asdict(answer)})
    out = console(json_path)
    if answer is not None:
        from tuner.report.lists import show_best

        show_best(answer, out)
    out.print(one_line(job), markup=False, highlight=False, soft_wrap=True)
    return 0 if job.state == _FINISHED else 1


def _is_modelled(client: "Client", job: "Job") -> bool:
    """True where a job runs on a simulated device, or can run on no other."""
    from tuner.model.device_choice import DeviceChoice

    if DeviceChoice.parse(job.device).one:
        return job.device.startswith("sim:")
    devices = client.status().get("devices") or ()
    return bool(devices) and all(device.get("modelled") for device in devices)


def _tell(event: "Event", progress: "RunProgress") -> None:
    data = event.data
    if event.kind == "state":
        why = f": {data['reason']}" if data.get("reason") else ""
        progress.told(f"job {event.job} {data.get('state')}{why}")
    elif event.kind == "run":
        progress.told(f"run {data.get('run')}{', resumed' if data.get('resumed') else ''}")
    elif event.kind == "told":
        progress.told(str(data.get("sentence", "")))
    elif event.kind == "compiled":
        progress.compiled(int(data.get("done", 0)), int(data.get("total", 0)))
    elif event.kind == "trial":
        progress.trial(
            number=int(data.get("number", 1)),
            status=str(data.get("status", "")),
            cost=data.get("cost"),
            best=data.get("best"),
            joules=data.get("joules"),
            expected=data.get("expected"),
            confirming=bool(data.get("confirming")),
            unit=str(data.get("unit", "")),
        )


def _answer(client: "Client", job: "Job") -> "Best | None":
    """The daemon's answer for the workloads of a finished job; None if it has not finished."""
    if job.state != _FINISHED:
        return None
    try:
        return client.best(
            *job.workloads,
            objective=job.objective,
            device=job.device,
            max_slowdown=job.options.get("max_slowdown"),
            count=0.0,  # looked at, not used
        )
    except (DaemonError, InputError) as error:
        echo(f"the answer cannot be shown: {error}", err=True)
        return None
