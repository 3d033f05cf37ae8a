"""``tuner history``: the stored runs, newest first."""

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.db import reading
from tuner.cli.options import database_option
from tuner.cli.output import console, json_option, write_json

if TYPE_CHECKING:
    from tuner.model.records import StoredRun


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=1_000_000),
    default=20,
    show_default=True,
    help="Newest runs shown.",
)
@database_option
@json_option
def history(*, limit: int, database: Path | None, json_path: str | None) -> None:
    """List stored runs, newest first. `tuner show RUN` shows one."""
    from tuner.database.decoding import NotUnderstood, named
    from tuner.report.runs_table import runs_report

    with reading(database) as store:
        found = [] if store is None else store.listed(limit)
    rows = [_row(run) for run in found if not isinstance(run, NotUnderstood)]
    odd = [run for run in found if isinstance(run, NotUnderstood)]
    if json_path is not None:
        write_json(json_path, {"runs": rows, "not_understood": [asdict(run) for run in odd]})
    out = console(json_path)
    if rows or not odd:
        out.print(runs_report(rows, out.width))
    for sentence in named(odd):
        out.print(sentence, markup=False, highlight=False, soft_wrap=True)


def _row(run: "StoredRun") -> dict[str, Any]:
    from tuner.search.stored import status_of

    return {
        "run": run.id,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "status": status_of(run),
        "workloads": [name for name, _ in run.conditions["workloads"]],
        "device": run.conditions["device"]["spec"],
        "modelled": run.conditions["device"]["modelled"],
        "recorded": run.conditions["device"].get("recorded") or None,
        "objective": run.objective,
        "policy": run.conditions["policy"],
        "clocks": run.conditions["clocks"],
        "trials": run.trials,
        "best": None if run.answer is None else run.answer["best"],
    }
