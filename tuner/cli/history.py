"""``tuner history``: the stored runs, newest first."""

from dataclasses import asdict
from pathlib import Path

import click

from tuner.cli.db import reading
from tuner.cli.options import database_option
from tuner.cli.output import console, json_option, write_json


@click.command()
@click.option(
    "--limit",
    type=click.IntRange(min=1, max=1_000_000),
    metavar="N",
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
    from tuner.search.run_rows import run_row

    with reading(database) as store:
        found = [] if store is None else store.listed(limit + 1)
    older, found = len(found) > limit, found[:limit]
    rows = [run_row(run) for run in found if not isinstance(run, NotUnderstood)]
    odd = [run for run in found if isinstance(run, NotUnderstood)]
    if json_path is not None:
        write_json(json_path, {"runs": rows, "not_understood": [asdict(run) for run in odd]})
    out = console(json_path)
    if rows or not odd:
        out.print(runs_report(rows, out.width))
    if older:
        out.print(f"older runs are not shown; --limit {2 * limit} shows more", highlight=False)
    for sentence in named(odd):
        out.print(sentence, markup=False, highlight=False, soft_wrap=True)
