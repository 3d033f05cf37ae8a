"""``tuner submit``, ``jobs``, ``follow``, ``status`` and their like: the daemon's queue."""

import shlex
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completion
from tuner.cli.options import finite, search_options
from tuner.cli.output import console, echo, json_option, write_json
from tuner.cli.remote import (
    client_of,
    one_line,
    show_job,
    show_jobs,
    socket_option,
    when_started,
)
from tuner.model.errors import DaemonError, InputError, RunInterrupted

if TYPE_CHECKING:
    from tuner.client.client import Client
    from tuner.model.jobs import Event, Job
    from tuner.model.run_document import Best
    from tuner.report.progress import RunProgress


# --- ``tuner follow``: show the progress of a job of the daemon, and its answer.

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
    from tuner.model.units import MODELLED
    from tuner.report.progress import RunProgress

    try:
        label = MODELLED if _is_modelled(client, job) else ""
        # an objective of a newer daemon is shown without its unit rather than not at all
        objective = job.objective if job.objective in UNITS else "time"
        with RunProgress(objective, label, tells_trials=True) as progress:
            for event in client.follow(job.id):
                _show_event(event, progress)
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
        write_json(json_path, {"job": asdict(job), "answer": None if answer is None else asdict(answer)})
    out = console(json_path)
    if answer is not None:
        from tuner.report.lists import show_best

        show_best(answer, out)
    out.print(one_line(job), soft_wrap=True)
    return 0 if job.state == _FINISHED else 1


def _is_modelled(client: "Client", job: "Job") -> bool:
    """True where a job runs on a simulated device, or can run on no other."""
    from tuner.model.jobs import DeviceChoice

    if DeviceChoice.parse(job.device).one:
        return job.device.startswith("sim:")
    devices = client.status().get("devices") or ()
    return bool(devices) and all(device.get("modelled") for device in devices)


def _show_event(event: "Event", progress: "RunProgress") -> None:
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
    limit, timing = job.options.get("max_slowdown"), job.options.get("timing")
    try:
        return client.best(
            *job.workloads,
            objective=job.objective,
            device=job.device,
            max_slowdown=limit if isinstance(limit, int | float) else None,
            timing=timing if isinstance(timing, str) else None,
            count=0.0,  # looked at, not used
        )
    except (DaemonError, InputError) as error:
        echo(f"the answer cannot be shown: {error}", err=True)
        return None


# --- ``tuner submit``, ``status``, ``jobs``, ``cancel``, ``pause`` and ``resume``.

_MOST = 500  # in one answer of the daemon
# the values of tuner.model.jobs.JobState, whose import would take a third of what `tuner --help` does
STATES = ("queued", "running", "paused", "finished", "failed", "cancelled")
_GOES_ON = ("queued", "running")


@click.command(short_help="Queue a search at the daemon.")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...", shell_complete=completion.workloads)
@search_options(defaults=False)
@click.option(
    "--device",
    metavar="SPEC",
    shell_complete=completion.devices,
    default="",
    help="cuda:0, sim:jetson-tx1 ..., or one GPU of a kind: 'kind:NVIDIA H200', 'kind:NVIDIA H200@DRIVER'."
    " Default: any device of the daemon.",
)
@click.option(
    "--priority",
    type=click.FloatRange(-1e6, 1e6),
    metavar="N",
    callback=finite,
    default=0.0,
    show_default=True,
    help="Of one's own jobs, the highest goes first.",
)
@click.option("--follow", "follows", is_flag=True, help="Show the search until it has ended, and its answer.")
@socket_option
@json_option
@click.pass_context
def submit(
    ctx: click.Context,
    /,
    workloads: tuple[str, ...],
    *,
    device: str,
    priority: float,
    follows: bool,
    socket: str | None,
    json_path: str | None,
    **options: Any,  # noqa: ANN401 - those of a search, by name
) -> None:
    """Queue a search of workloads that run at the same time on one GPU.

    The daemon tunes them when the GPU is free, and continues after a restart. WORKLOADs and options are those
    of `tuner run`, with defaults from daemon.toml. Jobs set no power limits.
    """
    from tuner.kernel_files.catalog import DEFAULT_WORKLOADS

    names = workloads or DEFAULT_WORKLOADS
    client, job = when_started(
        socket, lambda daemon: daemon.submit(*names, device=device, priority=priority, **options)
    )
    if follows:
        echo(one_line(job), err=True)
        ctx.exit(follow_to_the_end(client, job, json_path))
    if json_path is not None:
        write_json(json_path, asdict(job))
    out = console(json_path)
    out.print(one_line(job), soft_wrap=True)
    for line in (f"`tuner follow {job.id}` shows how it goes", _where_its_answer_is(job)):
        out.print(line, soft_wrap=True)


def _where_its_answer_is(job: "Job") -> str:
    """The command that prints the answer of a job, where it is known on which device that will be."""
    from tuner.model.jobs import DeviceChoice

    if not DeviceChoice.parse(job.device).one:
        return f"`tuner jobs {job.id}` shows the device that it has taken, when it runs"
    slower = job.options.get("max_slowdown")
    words = [*job.workloads, "--objective", job.objective]
    words += [] if slower is None else ["--max-slowdown", f"{100 * slower:g}%"]
    words += ["--timing", str(job.options["timing"])] if "timing" in job.options else []
    command = shlex.join(["tuner", "best", *words, "--device", job.device])
    return f"`{command}` shows its answer"


@click.command(short_help="Show the state of the daemon.")
@socket_option
@json_option
def status(*, socket: str | None, json_path: str | None) -> None:
    """Show the state of the daemon: devices, running and waiting jobs, budgets, windows and troubles."""
    from tuner.report.lists import show_status

    document = client_of(socket).status()
    if json_path is not None:
        write_json(json_path, document)
    show_status(document, console(json_path))


@click.command(short_help="List the daemon's jobs, or show one.")
@click.argument(
    "number", type=click.IntRange(min=1), required=False, metavar="[JOB]", shell_complete=completion.jobs
)
@click.option(
    "--state",
    "states",
    type=click.Choice(STATES),
    multiple=True,
    help="Only jobs in this state; may be given several times.",
)
@click.option(
    "--limit",
    type=click.IntRange(1, _MOST),
    metavar="N",
    default=20,
    show_default=True,
    help="Newest jobs shown.",
)
@click.option(
    "--before",
    type=click.IntRange(min=1),
    metavar="JOB",
    shell_complete=completion.jobs,
    help="Only jobs older than this one.",
)
@socket_option
@json_option
def jobs(
    number: int | None,
    *,
    states: tuple[str, ...],
    limit: int,
    before: int | None,
    socket: str | None,
    json_path: str | None,
) -> None:
    """List jobs of the daemon, newest first, or show all details of one JOB."""
    client = client_of(socket)
    if number is not None:
        job = client.job(number)
        if json_path is not None:
            write_json(json_path, asdict(job))
        show_job(job, console(json_path))
        return
    listed = client.jobs(states, limit, before)
    if json_path is not None:
        write_json(json_path, {"jobs": list(map(asdict, listed))})
    out = console(json_path)
    show_jobs(listed, out)
    with suppress(DaemonError):
        for sentence in client.status().get("not_understood", ()):  # an older daemon has none
            out.print(sentence, soft_wrap=True)


@click.command(short_help="End a job; its measurements stay.")
@click.argument("number", type=click.IntRange(min=1), metavar="JOB", shell_complete=completion.jobs)
@socket_option
@json_option
def cancel(number: int, *, socket: str | None, json_path: str | None) -> None:
    """End a job for good. Its measurements stay stored, and clocks are restored."""
    _show(client_of(socket).cancel(number), json_path)


@click.command(short_help="Stop a job until it is resumed.")
@click.argument("number", type=click.IntRange(min=1), metavar="JOB", shell_complete=completion.jobs)
@socket_option
@json_option
def pause(number: int, *, socket: str | None, json_path: str | None) -> None:
    """Stop a job until `tuner resume`; its measurements stay stored."""
    client = client_of(socket)
    before = client.job(number).state
    _show(client.pause(number), json_path, already=before == "paused")


@click.command(short_help="Continue a paused job.")
@click.argument("number", type=click.IntRange(min=1), metavar="JOB", shell_complete=completion.jobs)
@socket_option
@json_option
def resume(number: int, *, socket: str | None, json_path: str | None) -> None:
    """Queue a paused job again; it continues where it was and measures nothing twice."""
    client = client_of(socket)
    before = client.job(number).state
    _show(client.resume(number), json_path, already=before in _GOES_ON)


def _show(job: "Job", json_path: str | None, *, already: bool = False) -> None:
    if json_path is not None:
        write_json(json_path, asdict(job))
    words = f"nothing to do: {one_line(job)}" if already else one_line(job)
    console(json_path).print(words, soft_wrap=True)
