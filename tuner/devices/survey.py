"""Finds the devices of a machine, in a child process: drivers may hang or crash there."""

import logging
from collections.abc import Collection, Sequence

from tuner.devices.choice import STAND_IN, identify
from tuner.devices.cuda.probe import driver_problem, gpu_count
from tuner.devices.sensors import restore_stale_clocks
from tuner.model.device import DeviceIdentity
from tuner.model.errors import TunerError


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
        Identities by the names of devices, and why others cannot be used. A GPU that is there under a second
        name is one device: two jobs on it would disturb each other.
    """
    identities, missing = dict[str, DeviceIdentity](), dict[str, str]()
    names = dict[str, str]()  # by UUID
    for spec in specs or _gpus():
        if spec in without:
            continue
        try:
            identity = identify(spec)
        except TunerError as error:
            missing[spec] = str(error).removeprefix(f"{spec}: ")
            continue
        first = names.setdefault(identity.uuid, identity.spec)
        if first == identity.spec and first not in identities:
            identities[first] = identity
        else:
            missing[spec] = f"is the same GPU as {first} ({identity.uuid}), which is tuned on once"
    return identities, missing


def simulated_identity() -> DeviceIdentity:
    """The identity of the simulated device that replaces a GPU."""
    return identify(STAND_IN)


def _gpus() -> list[str]:
    """Every GPU that the driver knows of, as it is named."""
    if driver_problem() is not None:
        return []
    return [f"cuda:{index}" for index in range(gpu_count())]
