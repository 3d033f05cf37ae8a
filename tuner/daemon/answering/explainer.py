"""The analytical answer of a workload, worked out in a child process: it compiles, and takes its time."""

import os
from pathlib import Path
from typing import Any

from tuner.config import load_kernel_file
from tuner.errors import InputError
from tuner.search.explaining import explain

_LOWEST = 19  # of priorities: the machine's own work goes first


class Explainer:
    """Lives in a child process of low priority, and so do the compilers it starts."""

    def __init__(self) -> None:
        os.nice(_LOWEST)

    def explain(self, workload: str, device: str, kernel_file: Path) -> dict[str, Any]:
        """What is kept of an analytical answer.

        Args:
            workload: e.g. ``scan-lf:N=1024``.
            device: whose limits count; a simulated one opens no GPU.
            kernel_file: of the workload.

        Returns:
            ``configuration`` (None where the model has no answer), ``rule``, ``considered`` candidates,
            ``reasons``, the ``default`` configuration, the ``source`` hash it is true for, ``seconds`` taken.

        Raises:
            TunerError: nothing is left of the space, or its files changed meanwhile.
        """
        kernel = load_kernel_file(kernel_file)
        (told,) = explain([workload], device, [kernel_file], shown=0)["workloads"]
        if load_kernel_file(kernel_file).fingerprint != kernel.fingerprint:
            raise InputError(f"{kernel_file}: changed while it was compiled")
        sizes = dict(pair.split("=", 1) for pair in workload.partition(":")[2].split(",") if pair)
        return {
            "configuration": told.get("configuration"),
            "rule": told["rule"],
            "considered": told["considered"],
            "reasons": list(told["reasons"]),
            "default": dict(kernel.default(kernel.workload(sizes))),
            "source": kernel.fingerprint,
            "seconds": told["prepare_s"] + told["choose_s"],
        }
