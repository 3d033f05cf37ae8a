"""A GPU's power limit through NVML. It is only ever lowered: below what is found there, and the default."""

import math
from collections.abc import Mapping
from typing import Any

from tuner.model.errors import ClockError, ClockRefusedError

from ..clocks.actuator import Ruling, no_ruling
from ..clocks.settings import POWER_LIMIT
from .library import NvmlGpu, translated
from .reads import MILLI
from .setting import may_set, setting

_SAME_W = 0.5  # a limit that is so near is the same
_ROUNDED = 0.01  # of a limit: drivers may round what is set by as much
_PER_W = 1000


class NvmlPowerLimitActuator:
    """Implements ``Actuator`` over NVML's power management limit; its values are whole watts.

    What is restored is the limit that was there. One that is no longer the one that was set was changed by
    somebody else, and is left.

    Args:
        gpu: UUID (as CUDA names it) or NVML's index.
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        rules: what the administrator rules for a UUID.

    Raises:
        ClockError: no driver or no such GPU.
    """

    control = POWER_LIMIT

    def __init__(self, gpu: str | int, *, library: str | None = None, rules: Ruling = no_ruling) -> None:
        self._gpu = NvmlGpu.open(gpu, library, error=ClockError)
        self._rules = rules
        self._found_mw: int | None = None  # before this actuator set one

    @property
    def gpu(self) -> str:
        """UUID of the GPU."""
        return self._gpu.uuid

    @property
    def name(self) -> str:
        """Product name of the GPU."""
        return self._gpu.name

    def permitted(self) -> bool:
        """See ``Actuator.permitted``: CAP_SYS_ADMIN."""
        return may_set()

    def listed(self) -> tuple[int, ...]:
        """See ``Actuator.listed``: the driver's range, but none above the default or the limit as found."""
        nvml = self._gpu.nvml
        try:
            return self._range(self._present_mw() if self._found_mw is None else self._found_mw)
        except (nvml.NVMLError_NotSupported, nvml.NVMLError_FunctionNotFound):
            return ()
        except nvml.NVMLError as error:
            raise ClockError(f"the power limits of {self.name} cannot be listed: {error}") from error

    def supported(self) -> tuple[int, ...]:
        """See ``Actuator.supported``."""
        return self._rules(self.gpu).allowed_w(self.listed())

    def read_w(self) -> float:
        """The limit that is set, in watts.

        Raises:
            ClockError: the GPU stopped answering.
        """
        with translated(ClockError, f"the power limit of {self.gpu} cannot be read"):
            return self._present_mw() * MILLI

    def default_w(self) -> float:
        """The driver's default, in watts.

        Raises:
            ClockError: the GPU stopped answering.
        """
        with translated(ClockError, f"the default power limit of {self.gpu} cannot be read"):
            return self._default_mw() * MILLI

    def before(self) -> dict[str, Any]:
        """See ``Actuator.before``: the limit in milliwatts."""
        with translated(ClockError, f"the power limit of {self.gpu} cannot be read"):
            self._found_mw = self._present_mw()
        return {"limit_mw": self._found_mw}

    def set(self, value: int) -> None:
        """See ``Actuator.set``; what it may be is looked at once more, as others may have changed it."""
        with translated(ClockRefusedError, f"the power limits of {self.gpu} cannot be listed"):
            present_mw = self._present_mw()
            allowed = self._range(min(present_mw, present_mw if self._found_mw is None else self._found_mw))
        if value not in allowed:
            raise ClockRefusedError(
                f"the power limit of {self.name} is {present_mw * MILLI:g} W: it is not set to {value} W"
            )
        what = f"the power limit of {self.name} cannot be set to {value} W"
        with setting(self._gpu, what, self.control):
            self._gpu.nvml.nvmlDeviceSetPowerManagementLimit(self._gpu.handle, value * _PER_W)
        shown_w = self.read_w()
        if not is_rounded(shown_w, value):
            self._apply(present_mw)  # ``restore`` would take it for another's
            raise ClockError(f"{what}: the driver made it {shown_w:g} W")

    def restore(self, old: Mapping[str, Any], new: int) -> list[str]:
        """See ``Actuator.restore``."""
        match old:
            case {"limit_mw": int(before_mw)}:
                pass
            case _:
                raise ClockError(f"what was set on {self.gpu} before is not understood: {dict(old)}")
        with translated(ClockError, f"the power limit of {self.gpu} cannot be read"):
            present_mw = self._present_mw()
        present_w = present_mw * MILLI
        if present_mw == before_mw:
            return []
        if is_rounded(present_w, new):
            self._apply(before_mw)
            return []
        if _same(present_w, before_mw * MILLI):
            return []
        return [f"the power limit is {present_w:g} W, not the {new} W that were set: left so"]

    def reset(self) -> None:
        """See ``Actuator.reset``: the driver's default."""
        self._apply(round(self.default_w() * _PER_W))

    def close(self) -> None:
        """Release NVML."""
        self._gpu.close()

    def _range(self, found_mw: int) -> tuple[int, ...]:
        """Whole watts that may be set where a limit was found, highest first."""
        least_mw, most_mw = self._gpu.nvml.nvmlDeviceGetPowerManagementLimitConstraints(self._gpu.handle)
        highest_mw = min(most_mw, self._default_mw(), found_mw)
        return tuple(range(math.floor(highest_mw / _PER_W), math.ceil(least_mw / _PER_W) - 1, -1))

    def _present_mw(self) -> int:
        return int(self._gpu.nvml.nvmlDeviceGetPowerManagementLimit(self._gpu.handle))

    def _default_mw(self) -> int:
        return int(self._gpu.nvml.nvmlDeviceGetPowerManagementDefaultLimit(self._gpu.handle))

    def _apply(self, milliwatts: int) -> None:
        """Give the GPU a limit that it had before, and see that it has it."""
        with setting(self._gpu, f"the power limit of {self.gpu} could not be restored", self.control):
            self._gpu.nvml.nvmlDeviceSetPowerManagementLimit(self._gpu.handle, milliwatts)
        shown_w, wanted_w = self.read_w(), milliwatts * MILLI
        if not _same(shown_w, wanted_w):
            raise ClockError(f"the power limit of {self.gpu} is {shown_w:g} W, and not {wanted_w:g} W again")


def is_rounded(shown_w: float, watts: int) -> bool:
    """True for a limit that a driver may have made of one that was set."""
    return abs(shown_w - watts) <= max(_SAME_W, _ROUNDED * watts)


def _same(one_w: float, other_w: float) -> bool:
    return abs(one_w - other_w) <= _SAME_W
