"""The border to GPUs of this machine beside power: clocks and their owners, health, other users."""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, ClassVar, Literal, Protocol

from tuner.power.base import ClockReading, Response


class ClockPlaces(Protocol):
    """Paths of clock controls and of their files."""

    @property
    def socket(self) -> Path:
        """Socket of ``tuner-clockd``."""


class GpuControl(Protocol):
    """The control of one GPU's clock or power limit, opened to look at it."""

    @property
    def gpu(self) -> str:
        """Name of the GPU in the control: NVML's UUID, or a devfreq node."""

    @property
    def name(self) -> str:
        """The GPU for people."""

    def permitted(self) -> bool:
        """True where this process may set it, as far as can be told without doing so."""

    def supported(self) -> tuple[int, ...]:
        """Clocks in MHz, or limits in W, that may be set, highest first.

        Raises:
            ClockError: the GPU stopped answering.
        """

    def close(self) -> None:
        """Release the GPU; changes nothing."""


class GpuClockState(Protocol):
    """The clock of one GPU as it is; see ``tuner.power.clocks.control``."""

    @property
    def control(self) -> str:
        """Name of the control that can set it, e.g. ``nvml``."""

    @property
    def gpu(self) -> str:
        """Name of the GPU in the control."""

    @property
    def name(self) -> str:
        """The GPU for people; empty where it does not answer."""

    @property
    def reading(self) -> ClockReading:
        """Present clock and throttle reasons."""

    @property
    def supported_mhz(self) -> tuple[int, ...]:
        """Clocks that can be set, highest first."""

    @property
    def setting(self) -> Mapping[str, Any]:
        """Readable state of lock or limits, in the words of the control."""

    @property
    def owner(self) -> str:
        """Owner of the clock, for people; empty if there is none."""

    @property
    def announced_mhz(self) -> int | None:
        """The clock that the journal says is set."""

    @property
    def stale(self) -> bool:
        """True where the journal's owner is gone."""

    @property
    def trouble(self) -> tuple[str, ...]:
        """Error messages for values that could not be read."""


class GpuPowerLimitState(Protocol):
    """The power limit of one GPU as it is; see ``tuner.power.clocks.control``."""

    @property
    def gpu(self) -> str:
        """UUID."""

    @property
    def limit_w(self) -> float | None:
        """As it is set now."""

    @property
    def default_w(self) -> float | None:
        """Of the driver."""

    @property
    def supported_w(self) -> tuple[int, ...]:
        """Limits that may be set, in whole watts, highest first."""

    @property
    def owner(self) -> str:
        """Owner of the limit, for people; empty if there is none."""

    @property
    def announced_w(self) -> int | None:
        """The limit that the journal says is set."""

    @property
    def stale(self) -> bool:
        """True where the journal's owner is gone."""

    @property
    def trouble(self) -> tuple[str, ...]:
        """Error messages for values that could not be read."""


class ClockRestoration(Protocol):
    """Result of restoring one setting of a GPU that a journal names."""

    @property
    def control(self) -> str:
        """Of the setting: ``powerlimit``, or a clock control."""

    @property
    def gpu(self) -> str:
        """Name of the GPU in the control."""

    @property
    def state(self) -> Literal["restored", "undone", "owned", "failed"]:
        """Undone by a reboot; owned by a living process; failed and still in the journal."""

    @property
    def details(self) -> tuple[str, ...]:
        """Messages: the owner, settings left alone, or the cause of a failure."""


class ComputeProcess(Protocol):
    """A process that computes on a GPU."""

    @property
    def pid(self) -> int:
        """Its number, as the driver sees it."""


class GpuFacts(Protocol):
    """A GPU's facts; None for what it, its driver or this process's permissions do not tell."""

    @property
    def index(self) -> int:
        """NVML's number of the GPU."""

    @property
    def uuid(self) -> str:
        """E.g. ``GPU-6f0...``."""

    @property
    def name(self) -> str:
        """Product name."""

    @property
    def driver(self) -> str | None:
        """Version of the driver."""

    @property
    def cuda(self) -> str | None:
        """Version of CUDA that the driver serves."""

    @property
    def capability(self) -> tuple[int, int] | None:
        """Compute capability."""

    @property
    def persistence(self) -> bool | None:
        """True when the driver stays loaded between programs."""

    @property
    def mig(self) -> bool | None:
        """True when the GPU is, or at the next reset will be, cut into instances."""

    @property
    def virtual(self) -> bool | None:
        """True when it is a virtual GPU's guest side."""

    @property
    def processes(self) -> Sequence[ComputeProcess] | None:
        """Processes that compute on it now."""

    @property
    def temperature_c(self) -> float | None:
        """Temperature of the chip."""


class GpuUsage(Protocol):
    """A GPU held open to be asked who uses it."""

    def processes(self) -> int | None:
        """Return the number of processes that compute on it; None if that is withheld."""

    def load_percent(self) -> float | None:
        """Share of the last second or less in which something ran on it; None where that is withheld."""

    def close(self) -> None:
        """Release it."""


class TemperatureReader(Protocol):
    """Reads a GPU's temperature."""

    def read(self) -> float | None:
        """Degrees Celsius; None where nobody tells."""

    def close(self) -> None:
        """Release it."""


class ResponseIdentification(Protocol):
    """Response of a reading to power, from a calibration; a dataclass, which reports show whole."""

    __dataclass_fields__: ClassVar[dict[str, Any]]

    @property
    def stored(self) -> Response | None:
        """Response to store for later runs; None if the calibration has no result."""

    @property
    def period_s(self) -> float:
        """Median time between fresh samples."""

    @property
    def usable(self) -> bool:
        """True where energy may be taken from this reading."""


class RecordedTrace(Protocol):
    """Power over time as a file holds it."""

    def write(self, path: str | Path) -> None:
        """Write the file: CSV where its name ends in ``.csv``, else JSON.

        Raises:
            InputError: it cannot be written.
        """
