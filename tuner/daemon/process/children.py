"""Servers of the daemon's child processes: they restore clocks, find GPUs, and predict configurations."""

import logging
import os
from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Any

from tuner.config import load_kernel_file
from tuner.devices.cuda.probe import driver_problem, gpu_count
from tuner.devices.sensors import restore_stale_clocks
from tuner.devices.worker import identify
from tuner.errors import InputError, TunerError
from tuner.model import DeviceIdentity, WorkloadName
from tuner.search.explaining import explain

_LOWEST = 19  # of priorities: the machine's own work goes first


def restore_clocks() -> list[str]:
    """Restore clocks that a killed tuner left set; logs to standard error.

    Returns:
        UUIDs of GPUs whose clocks could not be restored.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    return restore_stale_clocks()


def find(
    specs: Sequence[str], without: Collection[str] = ()
) -> tuple[dict[str, DeviceIdentity], dict[str, str]]:
    """Open devices one after the other.

    Args:
        specs: as named; empty for every GPU.
        without: those that are not opened.

    Returns:
        Identities by the names of devices, and why others cannot be used.
    """
    identities, missing = dict[str, DeviceIdentity](), dict[str, str]()
    for spec in specs or _gpus():
        if spec in without:
            continue
        try:
            identity = identify(spec)
        except TunerError as error:
            missing[spec] = str(error).removeprefix(f"{spec}: ")
        else:
            identities[identity.spec] = identity
    return identities, missing


def simulated_identity() -> DeviceIdentity:
    """The identity of the simulated device that replaces a GPU."""
    return identify(None)


def _gpus() -> list[str]:
    """Every GPU that the driver knows of, as it is named."""
    if driver_problem() is not None:
        return []
    return [f"cuda:{index}" for index in range(gpu_count())]


class Explainer:
    """Predicts configurations; lowers the priority of its process, which the compilers inherit."""

    def __init__(self) -> None:
        os.nice(_LOWEST)

    def explain(self, workload: str, device: str, kernel_file: Path) -> dict[str, Any]:
        """The analytical answer of a workload, as it is stored.

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
        sizes = dict(WorkloadName.parse(workload).sizes)
        return {
            "configuration": told.get("configuration"),
            "rule": told["rule"],
            "considered": told["considered"],
            "reasons": list(told["reasons"]),
            "default": dict(kernel.default(kernel.workload(sizes))),
            "source": kernel.fingerprint,
            "seconds": told["prepare_s"] + told["choose_s"],
        }
