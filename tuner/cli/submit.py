"""``tuner submit``: hand a search to the daemon."""

import shlex
from typing import TYPE_CHECKING, Any

import click

from tuner.cli import completing
from tuner.cli.options import finite, search_options
from tuner.cli.output import console, json_option, write_json
from tuner.cli.remote import client_of, document_of, one_line, socket_option

if TYPE_CHECKING:
    from tuner.client import Job


@click.command(short_help="Queue a search at the daemon.")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...", shell_complete=completing.workloads)
@search_options(defaults=False)
@click.option(
    "--device",
    metavar="SPEC",
    shell_complete=completing.devices,
    default="",
    help="cuda:0, sim:jetson-tx1 ... Default: the daemon's first.",
)
@click.option(
    "--priority",
    type=click.FloatRange(-1e6, 1e6),
    callback=finite,
    default=0.0,
    show_default=True,
    help="The highest goes first.",
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

    The daemon tunes them when the GPU is free, and goes on after a restart. WORKLOADs and options are those
    of `tuner run`; what is not given is as daemon.toml has it.
    """
    client = client_of(socket)
    job = client.submit(*(workloads or _default_workloads()), device=device, priority=priority, **options)
    if follows:
        from tuner.cli.follow import follow_to_the_end

        click.echo(one_line(job), err=True)
        ctx.exit(follow_to_the_end(client, job, json_path))
    if json_path is not None:
        write_json(json_path, document_of(job))
    out = console(json_path)
    out.print(one_line(job), markup=False, highlight=False, soft_wrap=True)
    for line in (f"`tuner follow {job.id}` shows how it goes", f"`{_best(job)}` shows its answer"):
        out.print(line, markup=False, highlight=False, soft_wrap=True)


def _best(job: "Job") -> str:
    """The command that asks for what a job finds."""
    slower = job.options.get("max_slowdown")
    words = [*job.workloads, "--objective", job.objective]
    words += [] if slower is None else ["--max-slowdown", f"{100 * slower:g}%"]
    return shlex.join(["tuner", "best", *words, *(["--device", job.device] if job.device else [])])


def _default_workloads() -> tuple[str, ...]:
    from tuner.config.catalog import DEFAULT_WORKLOADS

    return DEFAULT_WORKLOADS
