"""``tuner diff``: two runs side by side."""

from pathlib import Path

import click

from tuner.cli.options import database_option
from tuner.cli.output import console
from tuner.cli.stored_runs import document_of, title_of


@click.command(short_help="Show how two runs differ: answers, numbers, conditions.")
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@database_option
def diff(*, one: str, other: str, database: Path | None) -> None:
    """Show how run B differs from run A: answers, times, joules with intervals, and conditions.

    Each is a number of `tuner history`, or a file of `tuner run --json`.
    """
    from tuner.report.diff import diff_report

    documents = [document_of(name, database) for name in (one, other)]
    titles = (title_of(documents[0], one), title_of(documents[1], other))
    out = console()
    out.print(diff_report(documents[0], documents[1], titles, out.width))
