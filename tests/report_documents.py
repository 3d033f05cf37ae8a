"""Documents of runs made by hand, for tests of the report."""

from collections.abc import Mapping, Sequence
from typing import Any

Record = Any
Configuration = Mapping[str, Any]

H200 = {
    "spec": "cuda:0",
    "name": "NVIDIA H200",
    "uuid": "GPU-1",
    "driver": "580.159",
    "runtime": "13.0",
    "modelled": False,
    "recorded": "",
}
TX1 = H200 | {"spec": "sim:jetson-tx1", "name": "NVIDIA Jetson TX1 (modelled)", "modelled": True}
RECORDED = H200 | {"spec": "replay:h200", "recorded": "2026-11-21"}

_PERIOD = 7  # of the numbers below, which only have to differ


def run_trial(
    configurations: Mapping[str, Configuration],
    time_s: float | None,
    energy_j: float | None = None,
    *,
    status: str = "ok",
    detail: str = "",
    **more: Any,
) -> Record:
    """A trial of these configurations; joules are known to 0.1 %, one standard uncertainty."""
    return {
        "configurations": {name: dict(one) for name, one in configurations.items()},
        "clock_mhz": None,
        "status": status,
        "time_s": time_s,
        "time_s_uncertainty": None if time_s is None else 1e-3 * time_s,
        "energy_j": energy_j,
        "energy_j_uncertainty": None if energy_j is None else 1e-3 * energy_j,
        "energy_net_j": None if energy_j is None else 0.7 * energy_j,
        "energy_net_j_uncertainty": None if energy_j is None else 2e-3 * energy_j,
        "power_w": None if energy_j is None or time_s is None else energy_j / time_s,
        "idle_w": None if energy_j is None else 120.0,
        "idle_w_uncertainty": None if energy_j is None else 0.5,
        "sensor": None if energy_j is None else "nvml-energy-counter",
        "scope": None if energy_j is None else "gpu",
        "clock_seen_mhz": 1980.0,
        "flags": [],
        "workloads": {
            name: {"status": status, "time_s": time_s, "detail": detail} for name in configurations
        },
        **more,
    }


def run_document(
    trials: Sequence[Record],
    *,
    objective: str = "energy",
    device: Mapping[str, Any] = H200,
    best: int | None = 0,
    default: int | None = None,
    fastest: int | None = None,
    batch: int = 1,
    **more: Any,
) -> Record:
    """The document of a run; ``best``, ``default`` and ``fastest`` are places in the list of trials."""
    least = min(
        (i for i, one in enumerate(trials) if one["energy_j"] is not None and one["status"] == "ok"),
        key=lambda i: trials[i]["energy_j"],
        default=None,
    )
    named = {"best": best, "default": default, "fastest": fastest, "least_energy": least}
    parts = {key: None if place is None else trials[place] for key, place in named.items()}
    return {
        "run": 12,
        "status": "finished",
        "device": dict(device),
        "modelled": device["modelled"],
        "recorded": device["recorded"] or None,
        "objective": objective,
        "max_slowdown": None,
        "policy": "auto",
        "seed": 0,
        "clocks": "off",
        "sources": {},
        "settings": {},
        "workloads": [_workload(name, batch, parts) for name in trials[0]["configurations"]],
        "space": {
            "size": 41 ** len(trials[0]["configurations"]),
            "pruned": 37,
            "measured": len(trials),
            "failed": sum(one["status"] != "ok" for one in trials),
            "spared": 0,
            "clocks_mhz": [],
        },
        **parts,
        "against_default": run_comparison(parts["best"], parts["default"]),
        "trade_off": run_comparison(parts["best"], parts["fastest"]),
        "energy_trade_off": run_comparison(parts["least_energy"], parts["best"], paired=False),
        "one_after_another": None,
        "repeatability": {"trials": 3, "energy_interval": 0.004, "time_interval": 0.002},
        "tuning_energy_j": 17_900.0,
        "tuning_energy_j_uncertainty": 50.0,
        "resumed": 0,
        "wall_s": 33.2,
        "wall": {"prepare_s": 1.2, "search_s": 32.0, "windows_s": 20.0, "checks_s": 1.5},
        "notices": [],
        "break_even": None,
        "trials": list(trials),
        **more,
    }


def run_comparison(one: Record | None, other: Record | None, *, paired: bool = True) -> Record | None:
    """A trial against another, with halves of intervals of 0.1 % of joules and 0.2 % of time."""
    if one is None or other is None or one["time_s"] is None or other["time_s"] is None:
        return None
    found: Record = {"slowdown": one["time_s"] / other["time_s"] - 1, "slowdown_interval": 0.002}
    if one["energy_j"] is None or other["energy_j"] is None:
        return found
    saving = 1 - one["energy_j"] / other["energy_j"]
    return found | {"energy_saving": saving, "energy_saving_interval": 0.001, "turn_by_turn": paired}


def break_even_of(document: Record, runs: float = 2170.0) -> Record:
    """The document with a break-even after so many runs."""
    saving = document["tuning_energy_j"] / runs
    return document | {
        "break_even": {
            "unit": "J",
            "cost": document["tuning_energy_j"],
            "cost_interval": 98.0,
            "saving_per_run": saving,
            "saving_interval": 0.02 * saving,
            "runs": runs,
            "runs_least": 0.97 * runs,
            "runs_most": 1.03 * runs,
            "runs_per_day": None,
            "days": None,
        }
    }


def _workload(name: str, batch: int, parts: Mapping[str, Record | None]) -> Record:
    return {
        "name": name,
        "batch": batch,
        "space": {
            "cartesian": 64,
            "size": 37,
            "pruned": 37,
            "dropped": {},
            "uncompiled": 3,
            "min_occupancy": 0.0,
        },
        "rate_name": "GFlop/s",
        "best": _part(name, parts["best"]),
        "default": _part(name, parts["default"]),
        "compile_errors": [],
        "candidates": [],
    }


def _part(name: str, trial: Record | None) -> Record | None:
    if trial is None:
        return None
    place = list(trial["configurations"]).index(name) + 1
    time_s = None if trial["time_s"] is None else trial["time_s"] * (1 - 0.1 * (place % _PERIOD))
    share_j = None if trial["energy_j"] is None else trial["energy_j"] / len(trial["configurations"])
    return {
        "configuration": dict(trial["configurations"][name]),
        "spills": False,
        "status": trial["status"],
        "time_s": time_s,
        "energy_share_j": share_j,
        "energy_share_j_uncertainty": None if share_j is None else 1e-3 * share_j,
        "rate": None if time_s is None else 138.0 / time_s,
        "rate_per_watt": None if share_j is None else 50.0,
    }
