"""Stored runs as rows: what ``tuner history --json`` and ``GET /v1/runs`` have of them."""

from tuner.model.records import StoredRun
from tuner.model.run_document import RunRow
from tuner.search.stored import origin_record, status_of


def run_row(run: StoredRun) -> RunRow:
    """A run in a list: what it measured, where, and its best trial; None without an answer."""
    conditions = run.conditions
    return {
        "run": run.id,
        "started_at": run.started_at,
        "ended_at": run.ended_at,
        "status": status_of(run),
        "workloads": [name for name, _ in conditions["workloads"]],
        "device": conditions["device"]["spec"],
        "modelled": conditions["device"]["modelled"],
        "recorded": conditions["device"].get("recorded") or None,
        "objective": run.objective,
        "policy": conditions["policy"],
        "clocks": conditions["clocks"],
        "trials": run.trials,
        "merged_from": origin_record(run),
        "best": None if run.answer is None else run.answer["best"],
    }
