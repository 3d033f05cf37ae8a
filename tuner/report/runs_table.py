"""The table of stored runs."""

from collections.abc import Sequence

from rich.console import Group

from tuner.model.run_document import RunRow
from tuner.report.layout import LEAST_WIDTH, ReportLine, rendered, rows_in, table
from tuner.report.trials_table import energy_of
from tuner.report.words import label, moment, origin_words, si

_UTC = " UTC"


def runs_report(runs: Sequence[RunRow], width: int) -> Group:
    """Stored runs as rich prints them; what has no room beside the numbers stands below them.

    Args:
        runs: as ``tuner history --json`` writes them.
        width: characters of a line, 40 at least.
    """
    if not runs:
        return rendered([ReportLine("no run is stored")])
    width = max(width, LEAST_WIDTH)
    for brief in (False, True):
        rows = _rows(runs, brief=brief)
        if rows_in(rows, width) is not None:
            break
    notes = ["workloads · device · search", *(_note(run, brief=brief) for run in runs)]
    right = {place for place, head in enumerate(rows[0]) if head in ("run", "trials", "time", "energy")}
    return rendered([ReportLine(line) for line in table(rows, notes, width, right=right)])


def _rows(runs: Sequence[RunRow], *, brief: bool) -> list[list[str]]:
    columns = {
        "run": [str(run["run"]) for run in runs],
        "started (UTC)": [moment(run["started_at"]).removesuffix(_UTC) for run in runs],
    }
    if not brief:
        columns["status"] = [run["status"] for run in runs]
        columns["trials"] = [f"{run['trials']:,}" for run in runs]
    bests = [run["best"] for run in runs]
    columns["time"] = [si(None if best is None else best["time_s"], "s") for best in bests]
    columns["energy"] = [energy_of({} if best is None else best) for best in bests]
    return [list(columns), *map(list, zip(*columns.values(), strict=True))]


def _note(run: RunRow, *, brief: bool) -> str:
    marked = f" ({label(run)})" if label(run) else ""
    parts = [
        " + ".join(run["workloads"]),
        f"{run['device']}{marked}",
        f"{run['objective']}, {run['policy']}",
    ]
    if run["merged_from"] is not None:
        parts.append(origin_words(run["merged_from"]))
    if brief:
        parts.append(f"{run['status']}, {run['trials']:,} trials")
    return " · ".join(parts)
