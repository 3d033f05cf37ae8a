"""Finds the devices of a machine, in a child process: drivers may hang or crash there."""

import logging
from collections.abc import Collection, Sequence

from tuner.devices.choice import STAND_IN, identify
from tuner.devices.cuda.probe import driver_problem, gpu_count
from tuner.devices.sensors import restore_stale_clocks
from tuner.errors import TunerError
from tuner.model import DeviceIdentity


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
    return identify(STAND_IN)


def _gpus() -> list[str]:
    """Every GPU that the driver knows of, as it is named."""
    if driver_problem() is not None:
        return []
    return [f"cuda:{index}" for index in range(gpu_count())]
