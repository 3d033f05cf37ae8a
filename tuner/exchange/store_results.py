"""Kernel Tuner's results file (``store_results``, version 1.0), which its applications select from."""

import re
from collections.abc import Sequence
from typing import Any

from tuner.exchange.exported_run import ExportedRun, milliseconds
from tuner.model.errors import InputError

TOP = 0.03
"""Relative distance from the best within which configurations are kept."""


def results_document(runs: Sequence[ExportedRun], kernel_string: str = "") -> dict[str, Any]:
    """The JSON value of the file.

    Args:
        runs: of one kernel and objective.
        kernel_string: source of the kernel.

    Raises:
        InputError: the runs are of different kernels or objectives, or nothing valid was measured.
    """
    kernels = {" + ".join(run.kernels) for run in runs}
    objectives = {run.objective for run in runs}
    if len(kernels) > 1 or len(objectives) > 1:
        found = ", ".join(sorted(kernels if len(kernels) > 1 else objectives))
        raise InputError(f"a results file is of one kernel and one objective; these runs have {found}")
    data = [row for run in runs for row in _rows(run)]
    return {
        "version_number": "1.0",
        "kernel_name": kernels.pop(),
        **({"kernel_string": kernel_string} if kernel_string else {}),
        "objective": objectives.pop(),
        "objective_higher_is_better": False,
        "tunable_parameters": list(dict.fromkeys(name for run in runs for name in run.parameter_names())),
        "data": data,
    }


def _rows(run: ExportedRun) -> list[dict[str, Any]]:
    trials = [*run.trials, *([] if run.best is None or run.trials else [run.best])]
    costs = [(cost, one) for one in trials if (cost := one.cost(run.objective)) is not None]
    if not costs:
        raise InputError(
            f"{' + '.join(run.workloads)}: no trial has a valid {run.objective}; nothing to export"
        )
    best = min(cost for cost, _ in costs)
    return [
        {
            "device_name": device_word(run.device),
            "problem_size": "x".join(map(str, run.problem_size)),
            "tunable_parameters": run.parameters(one),
            run.objective: milliseconds(cost) if run.objective == "time" else cost,
        }
        for cost, one in sorted(costs, key=lambda pair: pair[0])
        if cost <= best * (1 + TOP)
    ]


def device_word(name: str) -> str:
    """A device as the file names it: every run of characters but letters and digits is one underscore."""
    return re.sub("[^0-9a-zA-Z]+", "_", name.strip())
