"""``tuner history``, ``show``, ``diff``, ``report`` and ``fleet``: stored runs."""

import sys
from collections.abc import Iterator
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import TYPE_CHECKING

import click

from tuner.cli import completion
from tuner.cli.db import reading
from tuner.cli.options import FRONT_CHOICE, database_option, margin_option, named_database, search_option
from tuner.cli.output import console, echo, json_option, series_option, writable, write_json, write_whole
from tuner.cli.remote import client_of, socket_option
from tuner.model.errors import InputError
from tuner.system.untrusted.reading import JSON_BYTES, load_json, plain, read_bytes

if TYPE_CHECKING:
    from tuner.database.runs import Store
    from tuner.model.records import StoredRun
    from tuner.model.run_document import RunDocument
    from tuner.report.trials_table import RankedTrial


# --- Runs that commands take: a number of the database, or a document that ``tuner run --json`` wrote.

_LARGEST = 2**63 - 1  # number that SQLite can look for
_PAGE = 50  # runs that are read at a time


def document_of(name: str | None, database: Path | None, *, with_series: bool = False) -> "RunDocument":
    """The document of a run, with its trials as far as they are known.

    Args:
        name: a number of ``tuner history``, or a file; None for the newest run.
        database: as named; None for the default.
        with_series: of a stored run, its trials with what ``tuner.search.document`` adds.

    Raises:
        InputError: there is no such run, or the file holds no document of a run.
    """
    if name is None or name.isdecimal():
        return _stored(None if name is None else int(name), database, with_series=with_series)
    path = Path(name)
    if not path.is_file():
        raise InputError(f"{name}: neither the number of a run (`tuner history`) nor a file")
    return _read(path)


def newest_answered(database: Path | None, *, alone: bool = False) -> str:
    """The number of the newest run with an answer.

    Args:
        database: as named; None for the default.
        alone: of the runs of one workload only.

    Raises:
        InputError: there is none.
    """
    with reading(database) as store:
        for run in () if store is None else _answered(store):
            if not alone or len(run.conditions["workloads"]) == 1:
                return str(run.id)
    which = "no run of one workload with an answer" if alone else "no run with an answer"
    raise InputError(f"{which} is stored; `tuner history` lists the runs")


def _answered(store: "Store") -> "Iterator[StoredRun]":
    """Runs with an answer, newest first."""
    before: int | None = None
    while page := store.page(_PAGE, before, answered=True):
        yield from page
        before = page[-1].id


def _stored(number: int | None, database: Path | None, *, with_series: bool) -> "RunDocument":
    from tuner.search.stored import stored_document

    with reading(database) as store:
        run = None
        if store is not None and number is None:
            run = next(iter(store.history(1)), None)
        elif store is not None and number is not None and number <= _LARGEST:
            run = store.run(number)
        if store is None or run is None:
            what = "no run is stored" if number is None else f"run {number}: there is no such run"
            raise InputError(f"{what}; `tuner history` lists the runs")
        return stored_document(store, run, with_series=with_series)


def _read(path: Path) -> "RunDocument":
    from tuner.model.run_document import run_document
    from tuner.model.typed import UnfitError

    try:
        document = load_json(read_bytes(path, JSON_BYTES))
    except OSError as error:
        raise InputError(f"{path}: {error.strerror}") from error
    except ValueError as error:
        raise InputError(f"{path}: not JSON ({error})") from None
    try:
        return run_document({"modelled": False, **document} if isinstance(document, dict) else document)
    except UnfitError as error:
        raise InputError(f"{path}: not a document of `tuner run --json`: {error}") from None


def title_of(document: "RunDocument", name: str | None) -> str:
    """Return the title of a document in a comparison: the run's number, or the file."""
    return f"run {document['run']}" if name is None or name.isdecimal() else name


@click.command(short_help="Show how two runs differ: answers, numbers, conditions.")
@click.argument("one", metavar="A")
@click.argument("other", metavar="B")
@margin_option("--fail-above", None, "How much more the answer of B may cost than that of A.")
@database_option
def diff(*, one: str, other: str, fail_above: float | None, database: Path | None) -> None:
    """Show how run B differs from run A: answers, times, joules with intervals, and conditions.

    Each is a number of `tuner history`, or a file of `tuner run --json`. With --fail-above the exit code is
    that of `tuner gate`: 1 where B surely costs more by that, 3 where the intervals do not tell.
    """
    from tuner.measurement.paired import EXIT_CODES
    from tuner.report.diff import diff_report, verdict_on

    documents = [document_of(name, database) for name in (one, other)]
    titles = (title_of(documents[0], one), title_of(documents[1], other))
    out = console()
    judged = None if fail_above is None else verdict_on(documents[0], documents[1], fail_above)
    out.print(diff_report(documents[0], documents[1], titles, out.width))
    if judged is not None:
        verdict, why = judged
        out.print(f"{verdict}: {why}", soft_wrap=True)
        sys.exit(EXIT_CODES[verdict])


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
    from tuner.report.lists import fleet_report
    from tuner.search.verification import check_names
    from tuner.search.verification import fleet as compared

    with reading(database) as store:
        runs = [] if store is None else store.all_answered()
        answers = [answer for run in runs if (answer := stored_answer(run)) is not None]
    check_names(answers, workloads)
    groups = compared(answers, workloads)
    if json_path is not None:
        write_json(json_path, {"fleet": [group.document() for group in groups]})
    out = console(json_path)
    out.print(fleet_report(groups, out.width))


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
    from tuner.report.lists import runs_report
    from tuner.search.stored import run_row

    with reading(database) as store:
        runs = [] if store is None else store.listed(limit + 1)
    older, runs = len(runs) > limit, runs[:limit]
    rows = [run_row(run) for run in runs if not isinstance(run, NotUnderstood)]
    odd = [run for run in runs if isinstance(run, NotUnderstood)]
    if json_path is not None:
        write_json(json_path, {"runs": rows, "not_understood": [asdict(run) for run in odd]})
    out = console(json_path)
    if rows or not odd:
        out.print(runs_report(rows, out.width))
    if older:
        out.print(f"older runs are not shown; --limit {2 * limit} shows more")
    for sentence in named(odd):
        out.print(sentence, soft_wrap=True)


# --- ``tuner report``: runs as a page.

_MEGABYTE = 1e6


@click.command(short_help="Write a run, or two side by side, as one HTML file.")
@click.argument("run", required=False, metavar="[RUN")
@click.argument("other", required=False, metavar="[RUN2]]")
@click.option("--daemon", is_flag=True, help="All answers that the daemon has, and what they save.")
@click.option(
    "--output",
    metavar="FILE",
    callback=writable,
    help="Where to write; - is standard output. Default: run-N.html or daemon.html here.",
)
@database_option
@socket_option
def report(
    run: str | None,
    other: str | None,
    *,
    daemon: bool,
    output: str | None,
    database: Path | None,
    socket: str | None,
) -> None:
    """Write a report that any browser opens, without a network: the answer, how sure it is, charts, trials.

    RUN is a number of `tuner history`, or a file of `tuner run --json`; without one, the newest run is shown.
    With RUN2, both stand side by side, and the second is held against the first.
    """
    if daemon:
        if run is not None:
            raise InputError("--daemon: shows all answers of the daemon; leave RUN out")
        text, name = _of_daemon(socket), "daemon.html"
    else:
        text, name = _of_runs(run, other, database)
    if output == "-":
        sys.stdout.write(text)
        return
    if output is None:
        context = click.get_current_context()
        option = next(one for one in context.command.params if one.name == "output")
        output = writable(context, option, name)
    write_whole(Path(str(output)), text, f"--output {output}")
    echo(f"report: {output} ({len(text.encode()) / _MEGABYTE:.2f} MB)")


def _of_runs(run: str | None, other: str | None, database: Path | None) -> tuple[str, str]:
    """The page of one run or of two, and the name of its file."""
    from tuner.report.html.report import pair_page, run_page

    one, now = document_of(run, database, with_series=True), datetime.now(timezone.utc)
    if other is None:
        return run_page(one, now), f"run-{_named(one, run)}.html"
    two = document_of(other, database, with_series=True)
    titles = (title_of(one, run), title_of(two, other))
    name = f"run-{_named(one, run)}-{_named(two, other)}.html"
    return pair_page(one, two, titles, now), name


def _named(document: "RunDocument", name: str | None) -> str:
    return str(document["run"]) if name is None or name.isdecimal() else Path(name).stem


def _of_daemon(socket: str | None) -> str:
    from tuner.report.html.report import machine_page

    client = client_of(socket)
    status = client.status()
    return machine_page(status, client.archive.answers(), client.savings(), datetime.now(timezone.utc))


# --- ``tuner show``.

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
@click.option(
    "-v", "--verbose", is_flag=True, help="Show everything: why, how sure, net of idle, where time went."
)
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
    from tuner.report.answer import within_slowdown
    from tuner.report.trials_table import csv_of, ranked_trials, selected

    if as_csv and json_path == "-":
        raise InputError("--csv and --json - both want standard output; name a file after --json")
    if with_series and json_path is None:
        raise InputError("--with-series: adds to what --json writes; name a file after --json")
    document = within_slowdown(document_of(run, database, with_series=with_series), max_slowdown)
    if curve_path is not None:
        from tuner.report.details import draw_curve

        draw_curve(document, Path(curve_path))
    ranked = ranked_trials(document)
    trials = selected(document, ranked, sort=sort, where=where, status=status)
    limit = top if top is not None else 0 if as_csv or json_path is not None else _TOP
    shown = trials[:limit] if limit else trials
    if json_path is not None:
        listed = [
            {**one.trial, "number": one.number, "rank": one.rank, "marks": list(one.marks)} for one in shown
        ]
        write_json(json_path, {**document, "trials": listed})
    if as_csv:
        sys.stdout.write(plain(csv_of(document, shown)))
    elif json_path != "-":
        _print(document, shown, cut=len(shown) < len(trials), verbose=verbose)


def _print(document: "RunDocument", shown: "list[RankedTrial]", *, cut: bool, verbose: bool) -> None:
    from tuner.report.run_report import run_report

    out = console()
    out.print(run_report(document, out.width, verbose=verbose, trials=shown, database=named_database()))
    if not shown and document["trials"]:
        out.print("no trial is as --where and --status ask")
    if cut:
        out.print("--top 0 shows all trials")
