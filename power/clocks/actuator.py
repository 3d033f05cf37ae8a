"""What a clock control can do to one GPU, without owners, journals or leases around it."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from tuner.errors import ClockError
from tuner.interfaces import ClockReading

_NEAR = 3  # clocks named to somebody who asked for one that is not there


class Actuator(Protocol):
    """Reads and sets the clock of one GPU. Opening and reading change nothing.

    Whoever sets has a journal entry on disk before, with what ``before`` says, and calls ``restore`` with it
    afterwards: that is ``clockd_leases`` alone.
    """

    @property
    def control(self) -> str:
        """Name of the kind of control, e.g. ``nvml``: first part of a journal's file name."""

    @property
    def gpu(self) -> str:
        """What the GPU is called by this control at every start, e.g. its UUID; fit for a file name."""

    @property
    def name(self) -> str:
        """The GPU for people."""

    def permitted(self) -> bool:
        """True where this process may set clocks, as far as that can be told without setting one."""

    def listed_mhz(self) -> tuple[int, ...]:
        """Clocks that can be set, whoever may; empty where none can.

        Raises:
            ClockError: the GPU stopped answering.
        """

    def supported_mhz(self) -> tuple[int, ...]:
        """Those of them that the administrator allows, highest first.

        Raises:
            ClockError: the GPU stopped answering.
            InputError: the administrator's file is wrong.
        """

    def read(self) -> ClockReading:
        """Present clock and throttle reasons.

        Raises:
            ClockError: the GPU stopped answering.
        """

    def before(self) -> dict[str, Any]:
        """What a later ``restore`` needs to know of the present state, as plain JSON values.

        Raises:
            ClockError: it cannot be read, so that nothing may be set.
            InputError: the administrator's file is wrong.
        """

    def set(self, mhz: int) -> None:
        """Hold the GPU at a supported clock.

        Raises:
            ClockRefusedError: it cannot be or may not be (``ClockPermissionError``); nothing was changed.
            ClockError: something went wrong on the way; ``restore`` has to be called.
        """

    def restore(self, old: Mapping[str, Any], new_mhz: int) -> list[str]:
        """Undo what ``set`` did, or had begun to do, and see that it is undone where that can be read.

        Args:
            old: what ``before`` said.
            new_mhz: the clock that was or was about to be set.

        Returns:
            What was left alone because somebody else has changed it since, for people.

        Raises:
            ClockError: something is still as ``set`` left it; it is worth trying again.
        """

    def reset(self) -> None:
        """Give the clock back to driver and configuration, whoever set it; for an explicit order only.

        Raises:
            ClockError: the driver is gone or refuses.
            InputError: the administrator's file is wrong.
        """

    def close(self) -> None:
        """Release the GPU; changes nothing."""


@dataclass(frozen=True)
class Where:
    """Where clocks are found and what belongs to them is kept.

    Attributes:
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        devfreq: the kernel's class of devices with a scalable clock.
        config: the administrator's file, see ``clock_config``.
        directory: of journals and locks; None for the default of ``journal.runtime_directory``.
        socket: of ``tuner-clockd``.
    """

    library: str | None = None
    devfreq: Path = Path("/sys/class/devfreq")
    config: Path = Path("/etc/tuner/clockd.toml")
    directory: Path | None = None
    socket: Path = Path("/run/tuner/clockd.sock")


@dataclass(frozen=True)
class Rules:
    """What the administrator rules for one GPU; ranges in MHz, both ends included.

    Attributes:
        limits_mhz: clocks that may be set; None for all that are supported.
        baseline_mhz: range to lock the GPU to after a reset; None to leave it unlocked.
    """

    limits_mhz: tuple[int, int] | None = None
    baseline_mhz: tuple[int, int] | None = None

    def allowed(self, clocks_mhz: Sequence[int]) -> tuple[int, ...]:
        """Those of some clocks that may be set, highest first."""
        low, high = self.limits_mhz or (0, max(clocks_mhz, default=0))
        return tuple(sorted({mhz for mhz in clocks_mhz if low <= mhz <= high}, reverse=True))


Ruling = Callable[[str], Rules]
"""What is ruled for the GPU of that name; asked when a clock is to be set, and not by who only reads."""


def no_ruling(_gpu: str) -> Rules:
    """Rules nothing."""
    return Rules()


def demand(actuator: Actuator, mhz: int) -> None:
    """Refuse a clock that an actuator does not support.

    Raises:
        ClockError: the message names the nearest ones.
    """
    supported = actuator.supported_mhz()
    if not supported:
        raise ClockError(f"the clocks of {actuator.name} cannot be set: use --clocks off")
    if mhz not in supported:
        near = ", ".join(map(str, sorted(sorted(supported, key=lambda clock: abs(clock - mhz))[:_NEAR])))
        raise ClockError(f"{actuator.name} has no clock of {mhz} MHz; near it are {near}")
