"""The GPUs of this machine, asked in a child process: drivers hang, crash and take memory there."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from tuner.errors import ChildError
from tuner.model import DeviceIdentity
from tuner.process import Child

_RESTORE_S = 30.0  # a driver that hangs must not keep the daemon from answering
_FIND_S = 60.0  # a first CUDA context on a machine of several GPUs
_SURVEY = "tuner.daemon.process.survey"
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """The devices that can be tuned on.

    Attributes:
        identities: device -> who it is, the first first.
        missing: why others cannot be.
        left_set: GPUs whose clocks could not be given back.
    """

    identities: dict[str, DeviceIdentity]
    missing: tuple[str, ...]
    left_set: tuple[str, ...] = ()


def restore_and_find(specs: Sequence[str]) -> Found:
    """Give back clocks that a killed tuner left set, then find the devices there are.

    Args:
        specs: devices that are wanted; empty for every GPU, or the modelled one that stands in for one.
    """
    try:
        with Child(
            "importlib:import_module", "tuner.daemon.process.survey", name="survey of the GPUs"
        ) as child:
            left_set = child.call("restore_clocks", timeout_s=_RESTORE_S)
            identities, missing = child.call("find", tuple(specs), timeout_s=_FIND_S)
    except ChildError as error:
        _LOG.error("%s", error)
        return Found({}, (str(error),))
    return Found(identities, tuple(missing), tuple(left_set))
