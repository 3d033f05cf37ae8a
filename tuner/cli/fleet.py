"""``tuner fleet``: how the GPUs of a kind differ in the answers that are stored."""

from pathlib import Path

import click

from tuner.cli import completion
from tuner.cli.db import reading
from tuner.cli.options import database_option
from tuner.cli.output import console, json_option, write_json


@click.command(short_help="Compare the GPUs of each kind, and name outliers.")
@click.argument("workloads", nargs=-1, metavar="[WORKLOAD]...", shell_complete=completion.workloads)
@database_option
@json_option
def fleet(workloads: tuple[str, ...], *, database: Path | None, json_path: str | None) -> None:
    """Compare the GPUs of each kind: time and joules of the answers on each, their spread, and outliers.

    A kind is a model of GPU with its driver. A WORKLOAD, such as scan-lf:N=1024, shows what it is part of;
    without any, all is shown that has answers of two GPUs of a kind, also of merged runs of other hosts.
    """
    from tuner.database.answers import stored_answer
    from tuner.report.fleet_report import fleet_report
    from tuner.search.fleet import check_names
    from tuner.search.fleet import fleet as compared

    with reading(database) as store:
        runs = [] if store is None else store.all_answered()
        answers = [answer for run in runs if (answer := stored_answer(run)) is not None]
    check_names(answers, workloads)
    groups = compared(answers, workloads)
    if json_path is not None:
        write_json(json_path, {"fleet": [group.document() for group in groups]})
    out = console(json_path)
    out.print(fleet_report(groups, out.width))
