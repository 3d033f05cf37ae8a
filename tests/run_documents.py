"""Documents of runs as small as they may be, for tests of what is read of them."""

from collections.abc import Mapping, Sequence
from typing import Any, cast

from tuner.model.plan import TunableValue
from tuner.model.run_document import RunDocument


def trial(configurations: Mapping[str, Mapping[str, TunableValue]], **numbers: Any) -> dict[str, Any]:
    """A valid trial of workloads, 10 ms long where nothing else is said."""
    values = {name: dict(one) for name, one in configurations.items()}
    made = {"configurations": values, "clock_mhz": None, "status": "ok", "time_s": 0.01, "energy_j": None}
    return {**made, **numbers}


def answered(
    best: Mapping[str, Any] | None,
    names: Sequence[str] = (),
    *,
    default: Mapping[str, Any] | None = None,
    **more: Any,
) -> RunDocument:
    """The document of a run.

    Args:
        best: trial of its answer; None for a run without one.
        names: of the workloads; those of the answer where none are named.
        default: trial.
        more: further keys.
    """

    def part(of: Mapping[str, Any] | None, name: str) -> dict[str, Any] | None:
        if of is None:
            return None
        unknown = dict.fromkeys(("energy_share_j", "energy_share_j_uncertainty", "rate"))
        return {"configuration": of["configurations"][name], "time_s": of["time_s"], **unknown}

    workloads = [
        {"name": name, "batch": 1, "space": {}, "default": part(default, name), "best": part(best, name)}
        for name in names or (best or {})["configurations"]
    ]
    made = {
        "status": "finished",
        "device": {"name": "GPU"},
        "modelled": True,
        "objective": "energy",
        "workloads": workloads,
        "space": {"measured": 0},
        "best": best,
        "default": default,
    }
    return cast("RunDocument", {**made, **more})
