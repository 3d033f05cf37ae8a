"""``tuner show``: a run with its trials, sorted and filtered."""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from tuner.cli.options import FRONT_CHOICE, database_option, named_database, search_option
from tuner.cli.output import console, json_option, series_option, write_json
from tuner.cli.stored_runs import document_of
from tuner.model.errors import InputError
from tuner.untrusted.text import plain

if TYPE_CHECKING:
    from tuner.model.run_document import RunDocument
    from tuner.report.ranked_trials import RankedTrial


_TOP = 20


@click.command(short_help="Show a run with its trials, sorted and filtered.")
@click.argument("run", required=False, metavar="[RUN]")
@click.option("--sort", default="rank", metavar="KEY", help="rank, number, time, energy, power or a tunable.")
@click.option("--where", metavar="EXPRESSION", help="Only these trials, e.g. 'P >= 16 and time < 2e-3'.")
@click.option("--status", metavar="STATUS", help="Only trials that ended so: ok, timeout, wrong-answer ...")
@click.option(
    "--top", type=click.IntRange(min=0), metavar="N", help=f"So many trials; 0 for all. Default: {_TOP}."
)
@click.option("--csv", "as_csv", is_flag=True, help="Write the trials to standard output as CSV.")
@search_option("max_slowdown", text=FRONT_CHOICE)
@click.option(
    "--clock-curve",
    "curve_path",
    metavar="FILE",
    help="Draw time and energy over the clock: .png, .svg or .pdf.",
)
@click.option("--verbose", is_flag=True, help="Show everything: how sure, net of idle, where time went.")
@database_option
@json_option
@series_option
def show(
    run: str | None,
    *,
    sort: str,
    where: str | None,
    status: str | None,
    top: int | None,
    max_slowdown: float | None,
    as_csv: bool,
    curve_path: str | None,
    verbose: bool,
    database: Path | None,
    json_path: str | None,
    with_series: bool,
) -> None:
    """Show a run: its answer and its trials.

    RUN is a number of `tuner history`, or a file of `tuner run --json`; without one, the newest run is shown.
    An EXPRESSION is written as in kernel files. It may use tunables, number, rank, status, time_s, energy_j,
    power_w, clock_mhz and power_limit_w, also without their units: time, energy, power, clock, power_limit.
    Tunables of several workloads carry the number of the workload: P_1, P_2. The filter of a report's page
    takes the same names.
    """
    from tuner.report.front import within_slowdown
    from tuner.report.ranked_trials import ranked_trials
    from tuner.report.selection import csv_of, selected

    if as_csv and json_path == "-":
        raise InputError("--csv and --json - both want standard output; name a file after --json")
    if with_series and json_path is None:
        raise InputError("--with-series: adds to what --json writes; name a file after --json")
    document = within_slowdown(document_of(run, database, with_series=with_series), max_slowdown)
    if curve_path is not None:
        from tuner.report.clock_plot import draw_curve

        draw_curve(document, Path(curve_path))
    ranked = ranked_trials(document)
    trials = selected(document, ranked, sort=sort, where=where, status=status)
    limit = top if top is not None else 0 if as_csv or json_path is not None else _TOP
    shown = trials[:limit] if limit else trials
    if json_path is not None:
        write_json(json_path, {**document, "trials": [_record(one) for one in shown]})
    if as_csv:
        sys.stdout.write(plain(csv_of(document, shown)))
    elif json_path != "-":
        _print(document, shown, cut=len(shown) < len(trials), verbose=verbose)


def _record(one: "RankedTrial") -> dict[str, Any]:
    return {**one.trial, "number": one.number, "rank": one.rank, "marks": list(one.marks)}


def _print(document: "RunDocument", shown: "list[RankedTrial]", *, cut: bool, verbose: bool) -> None:
    from tuner.report.run_report import show_run

    out = console()
    show_run(document, out, verbose=verbose, trials=shown, database=named_database())
    if not shown and document["trials"]:
        out.print("no trial is as --where and --status ask", highlight=False)
    if cut:
        out.print("--top 0 shows all trials", highlight=False)
