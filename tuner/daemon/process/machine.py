"""The GPUs of this machine, asked in a child process: drivers hang, crash and take memory there.

The GPUs as they were when they were asked last, and whether it is time to ask them again.
"""

import logging
from collections.abc import Collection, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.config.changes import DRIVER_FILES
from tuner.daemon.attempts.gpu_users import apart
from tuner.errors import ChildError
from tuner.model import DeviceIdentity
from tuner.system.process import Child

_RESTORE_S = 30.0  # a driver that hangs must not keep the daemon from answering
_FIND_S = 60.0  # a first CUDA context on a machine of several GPUs
_SURVEY = "tuner.daemon.process.children"
_DRIVERS = Path("/proc/devices")  # kinds of devices: a sandbox opens those that were there when it was made
_DEVICES = Path("/dev")
_LOG = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """The devices that can be tuned on.

    Attributes:
        identities: device -> who it is, the first first.
        missing: why others cannot be.
        left_set: GPUs whose clocks could not be given back.
        absent: devices that were named and cannot be used.
        stands_in: True where a modelled device stands in, as no GPU answers and none was named.
        signs: of a driver, before it was asked.
    """

    identities: dict[str, DeviceIdentity]
    missing: tuple[str, ...]
    left_set: tuple[str, ...] = ()
    absent: tuple[str, ...] = ()
    stands_in: bool = False
    signs: frozenset[str] = frozenset()


def restore_and_find(specs: Sequence[str]) -> Found:
    """Give back clocks that a killed tuner left set, then find the devices there are.

    Args:
        specs: devices that are wanted; empty for every GPU, or the modelled one that stands in for one.
    """
    return _found(specs, (), stand_in=not specs)


def restore_and_ask(specs: Sequence[str], without: Collection[str]) -> Found:
    """Give back clocks as at the start, and ask again which devices there are; nothing stands in.

    Args:
        specs: devices to ask; empty for every GPU.
        without: those that are left alone.
    """
    return _found(specs, without, stand_in=False)


def driver_signs(drivers: Path = _DRIVERS, devices: Path = _DEVICES) -> frozenset[str]:
    """What tells that the driver of a GPU is there, without asking it; more of it when more of it is loaded.

    Args:
        drivers: lists the kinds of devices.
        devices: folder of the devices.
    """
    signs = {str(path) for path in DRIVER_FILES if path.exists()}
    with suppress(OSError):
        signs |= {line.strip() for line in drivers.read_text().splitlines() if "nvidia" in line}
    return frozenset(signs | {path.name for path in devices.glob("nvidia*")})


def _found(specs: Sequence[str], without: Collection[str], *, stand_in: bool) -> Found:
    signs = driver_signs()
    try:
        with Child("importlib:import_module", _SURVEY, name="survey of the GPUs") as child:
            left_set = tuple(child.call("restore_clocks", timeout_s=_RESTORE_S))
            identities, absent = child.call("find", tuple(specs), tuple(without), timeout_s=_FIND_S)
            missing = [f"{spec}: {why}" for spec, why in absent.items()]
            stand_in = stand_in and not identities
            if stand_in:
                identity = child.call("stand_in", timeout_s=_FIND_S)
                identities = {identity.spec: identity}
                missing.append(f"no GPU answers: {identity.spec} stands in, and every number is modelled")
    except ChildError as error:
        _LOG.error("%s", error)
        return Found({}, (str(error),), absent=tuple(specs), signs=signs)
    return Found(identities, tuple(missing), left_set, tuple(absent), stand_in, signs)


class Gpus:
    """What is known of the devices of this machine.

    Args:
        found: at the start.
        wanted: devices that were named; empty for every GPU.
    """

    def __init__(self, found: Found, wanted: Sequence[str]) -> None:
        self._found = found
        self._wanted = tuple(wanted)

    async def ask(self, known: Sequence[str], running: Sequence[str]) -> Found:
        """Ask devices again who they are.

        Args:
            known: those that are tuned on.
            running: those on which a job runs, which are left alone: nobody takes their driver away.
        """
        specs = [*known, *self._found.absent] if self._wanted else []
        found = await apart(restore_and_ask, specs, running)
        self._found = replace(self._found, signs=self._found.signs | found.signs)
        return found

    def driver_came(self, known: Sequence[str]) -> bool:
        """True, once, where more of a driver is there than at the start, and a GPU is missing.

        A sandbox opens only what was there when it was made, so that not to find a GPU may say nothing.

        Args:
            known: the devices that are tuned on.
        """
        lacking = self._found.stands_in or self._found.absent or not known
        new = driver_signs() - self._found.signs
        if not lacking or not new:
            return False
        self._found = replace(self._found, signs=self._found.signs | new)
        return True
