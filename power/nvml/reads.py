"""Single reads of NVML, checked: power fields and their scope, and numbers that must move."""

import contextlib
from collections.abc import Callable
from functools import partial
from typing import Any

from tuner.errors import PowerError, SensorUnavailableError

from .library import NvmlGpu

MILLI = 1e-3  # NVML counts milliwatts and millijoules
UNION = ("dVal", "uiVal", "ulVal", "ullVal", "sllVal", "siVal", "usVal")  # by nvmlValueType_t
_LOOKED_S = 1.0  # of the time between two looks as much counts as watched


class Silence:
    """Tells a sensor that has stopped from one that nobody looked at.

    Args:
        what: the reading and its GPU, for the message.
        limit_s: how long it may stand still while it is watched.
        now: a clock, in seconds.
    """

    def __init__(self, what: str, limit_s: float, now: Callable[[], float]) -> None:
        self._what = what
        self._limit_s = limit_s
        self._now = now
        self._looked_s = now()
        self._silent_s = 0.0

    def note(self, *, moved: bool) -> None:
        """Note a look.

        Raises:
            PowerError: nothing has moved for too long.
        """
        since_s, self._looked_s = self._now() - self._looked_s, self._now()
        self._silent_s = 0.0 if moved else self._silent_s + min(since_s, _LOOKED_S)
        if self._silent_s > self._limit_s:
            raise PowerError(f"{self._what} stopped updating: no change in {self._silent_s:.0f} s")


class Checked:
    """A number that is read again and again; reading it once shows that it answers, and not with zero.

    Args:
        read: reads it.
        name: of the reading.
        gpu: whose it is.
        silence: told of every read.
        forward: True for a counter, which must not go back.

    Raises:
        SensorUnavailableError: it reads zero.
    """

    def __init__(
        self, read: Callable[[], float], name: str, gpu: NvmlGpu, silence: Silence, *, forward: bool = False
    ) -> None:
        self._read = read
        self._what = f"{name} of {gpu.uuid}"
        self._silence = silence
        self._forward = forward
        self._last = read()
        if not self._last:
            raise SensorUnavailableError(f"{name}: reads 0")

    def __call__(self) -> float:
        """The number.

        Raises:
            PowerError: it stopped moving, or a counter went back.
        """
        value = self._read()
        if self._forward and value < self._last:
            raise PowerError(
                f"{self._what} went back from {self._last * MILLI:.3f} J to {value * MILLI:.3f} J:"
                " the driver was loaded anew"
            )
        moved, self._last = value != self._last, value
        self._silence.note(moved=moved)
        return value


def power_field(gpu: NvmlGpu, field: int) -> tuple[Callable[[], float], str]:
    """How a power field is read, and what it sees: the GPU, or the module where only that answers.

    On a GH200 power fields of the GPU fail, and those of the module tell what GPU and CPU draw together.

    Raises:
        NVMLError: neither answers; the error is that of the GPU.
    """
    nvml = gpu.nvml
    own = partial(_field, gpu, field, nvml.NVML_POWER_SCOPE_GPU)
    whole = partial(_field, gpu, field, nvml.NVML_POWER_SCOPE_MODULE)
    with contextlib.suppress(nvml.NVMLError):
        if own():
            return own, "gpu"
    with contextlib.suppress(nvml.NVMLError):
        if whole():
            return whole, "module"
    own()  # raises, or reads zero
    return own, "gpu"


def _field(gpu: NvmlGpu, field: int, scope: int) -> float:
    """One field value of NVML, as a number."""
    value: Any = gpu.nvml.nvmlDeviceGetFieldValues(gpu.handle, [(field, scope)])[0]
    if value.nvmlReturn:
        raise gpu.nvml.NVMLError(value.nvmlReturn)
    return float(getattr(value.value, UNION[value.valueType]))
