"""``tuner history``: the runs in the database."""

from pathlib import Path
from typing import Any

import click

from tuner.cli.options import database_option
from tuner.cli.output import console, json_option, write_json
from tuner.cli.reading import reading

_ROOM_FOR_ALL = 110  # characters
_STARTED = "started (UTC)"
_UTC = " UTC"


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
    """List stored runs, newest first."""
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from tuner.report.labels import label
    from tuner.report.moments import MOMENT_WIDTH, moment
    from tuner.report.units import si

    with reading(database) as store:
        rows = [] if store is None else [_row(run) for run in store.history(limit)]
    if json_path is not None:
        write_json(json_path, {"runs": rows})
    out = console(json_path)
    roomy = out.width >= _ROOM_FOR_ALL
    table = Table(box=SIMPLE_HEAD, show_edge=False, pad_edge=False)
    for title in ("run", _STARTED, "status", "workloads", *(("device", "search") if roomy else ())):
        whole = MOMENT_WIDTH - len(_UTC) if title == _STARTED else None
        table.add_column(title, no_wrap=title != "search", overflow="fold", min_width=whole)
    for title in ("trials", "time", "energy"):
        table.add_column(title, justify="right", no_wrap=True)
    for row in rows:
        best = row["best"] or {}
        where = (
            row["device"] + (f"\n({label(row)})" if label(row) else ""),
            f"{row['objective']}, {row['policy']}",
        )
        table.add_row(
            str(row["run"]),
            moment(row["started_at"]).removesuffix(_UTC),
            row["status"],
            "\n".join(row["workloads"]),
            *(where if roomy else ()),
            str(row["trials"]),
            si(best.get("time_s"), "s"),
            _joules(best),
        )
    out.print(table)


def _joules(best: dict[str, Any]) -> str:
    from tuner.model.objective import COVERAGE
    from tuner.report.units import with_uncertainty

    energy_j = best.get("energy_j")
    if energy_j is None:
        return "–"
    return with_uncertainty(energy_j, COVERAGE * best["energy_j_uncertainty"], "J")


def _row(run: Any) -> dict[str, Any]:  # noqa: ANN401 - StoredRun, imported late
    from tuner.system.owner import is_alive

    return {
        "run": run.id,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "status": "killed" if run.status == "running" and not is_alive(run.owner) else run.status,
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
