"""Kernel Launcher's wisdom files: a line of JSON per configuration, selected by device and problem size."""

import json
import re
from collections.abc import Sequence

from tuner import __version__
from tuner.exchange.build_files import comment_text
from tuner.exchange.exported_run import ExportedRun, milliseconds
from tuner.model.errors import InputError

KEPT = 5  # configurations per run, as Kernel Launcher's own writer keeps
_AXES = 3


def wisdom(runs: Sequence[ExportedRun]) -> str:
    """The text of a wisdom file; joules are comments, as its readers know times only.

    Raises:
        InputError: the runs are of several kernels or co-running, or nothing valid was measured.
    """
    kernels = list(dict.fromkeys(run.kernels for run in runs))
    if len(kernels) > 1 or len(kernels[0]) > 1:
        found = ", ".join(dict.fromkeys(name for names in kernels for name in names))
        raise InputError(f"a wisdom file is of one kernel; these runs are of {found}")
    names = list(dict.fromkeys(name for run in runs for name in run.parameter_names()))
    head = {"version": "1.0", "objective": "time", "tunable_parameters": names, "key": kernels[0][0]}
    lines = [json.dumps(head)]
    for run in runs:
        lines += _lines(run, names)
    return "\n".join(lines) + "\n"


def wisdom_name(kernel: str) -> str:
    """The name under which Kernel Launcher looks for the file of a key."""
    return re.sub(r"[^A-Za-z0-9_.-]", "_", kernel) + ".wisdom"


def _lines(run: ExportedRun, names: Sequence[str]) -> list[str]:
    trials = [*run.trials, *([] if run.best is None or run.trials else [run.best])]
    valid = sorted((one.time_s, i) for i, one in enumerate(trials) if one.time_s is not None)
    if not valid:
        raise InputError(
            f"{' + '.join(run.workloads)}: no trial has a valid time, so there is nothing to export"
        )
    lines: list[str] = []
    if run.objective != "time":
        lines.append(f"# tuned for {run.objective}; the lines below are the fastest")
        if run.best is not None and run.best.energy_j is not None:
            best = comment_text(str(run.best.configurations[0]))
            lines.append(f"# for {run.objective}: {best}, {run.best.energy_j:.6g} J")
    for time_s, i in valid[:KEPT]:
        values = run.parameters(trials[i])
        if set(values) != set(names):
            left = f"# left out, without {', '.join(set(names) - set(values))}: {trials[i].configurations[0]}"
            lines.append(comment_text(left))
            continue
        if trials[i].energy_j is not None:
            lines.append(f"# {trials[i].energy_j:.6g} J (+- {1.96 * trials[i].energy_uncertainty_j:.2g} J)")
        row = {
            "config": [values[name] for name in names],
            "problem_size": list(run.problem_size[:_AXES]) or [1],
            "time": milliseconds(time_s),
            "environment": {"device_name": run.device, "tuner": __version__},
        }
        lines.append(json.dumps(row))
    return lines
