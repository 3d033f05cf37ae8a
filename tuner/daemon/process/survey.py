"""What a child process of the daemon does at the start: clocks are given back, GPUs are found."""

import logging
from collections.abc import Sequence

from tuner.devices.cuda.probe import driver_problem, gpu_count
from tuner.devices.sensors import restore_stale_clocks
from tuner.errors import TunerError
from tuner.model import DeviceIdentity
from tuner.worker import identify


def restore_clocks() -> list[str]:
    """Give back clocks that a killed tuner left set; what is done is logged to standard error.

    Returns:
        UUIDs of GPUs whose clocks could not be given back.
    """
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(name)s: %(message)s")
    return restore_stale_clocks()


def find(specs: Sequence[str]) -> tuple[dict[str, DeviceIdentity], list[str]]:
    """Open devices one after the other.

    Args:
        specs: as named; empty for every GPU, or the modelled one that stands in for one.

    Returns:
        Who they are, by how they are named, and why others cannot be used.
    """
    identities, missing = dict[str, DeviceIdentity](), []
    for spec in specs or _gpus():
        try:
            identity = identify(spec)
        except TunerError as error:  # noqa: PERF203 - of few
            missing.append(f"{spec}: {error}")
        else:
            identities[identity.spec] = identity
    if not identities and not specs:
        identity = identify(None)
        identities[identity.spec] = identity
        missing.append(f"no GPU answers: {identity.spec} stands in, and every number is modelled")
    return identities, missing


def _gpus() -> list[str]:
    """Every GPU that the driver knows of, as it is named."""
    if driver_problem() is not None:
        return []
    return [f"cuda:{index}" for index in range(gpu_count())]
