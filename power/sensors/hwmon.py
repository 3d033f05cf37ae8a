"""Power of AMD GPUs and of Grace processors from the kernel's ``hwmon``; for reading only.

An ``amdgpu`` shows microwatts (``power1_average``, else ``power1_input``; kernel documentation, "GPU
Power/Thermal Controls and Monitoring"). A Grace shows ACPI power meters, each a mean over
``power1_average_interval`` milliseconds, named by ``power1_oem_info``: ``Module Power Socket 0`` is all,
``Grace Power Socket 0`` the processor with its memory, ``CPU Power Socket 0`` its cores, ``SysIO Power Socket
0`` its input and output (NVIDIA Grace Performance Tuning Guide, "Power and Thermals").
"""

import re
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from tuner.model.errors import PowerError, SensorUnavailableError

from ..base import Reading, Response, Sample, SensorInfo
from .attributes import SysfsAttribute, read_number, read_text
from .changes import Freshness, check_answers, sound
from .rails import unavailable

NAME = "hwmon"
ROOT = "/sys"

_MICRO = 1e-6
_MILLI = 1e-3
_AMD_S = 0.05  # the driver keeps what it has asked the card for about as long; learnt from the changes
_GRACE_S = 0.05  # where the interval is not told
_LOOKS = 4.0  # per period
_SOCKET = re.compile(r"(Module|Grace|CPU|SysIO) Power Socket (\d+)")


@dataclass(frozen=True)
class PowerMeterFile:
    """One power of one chip.

    Attributes:
        name: e.g. ``grace-0``, ``amdgpu-0000:03:00.0``.
        scope: what it sees: ``module``, ``grace``, ``cpu``, ``sysio`` or ``amdgpu``.
        file: microwatts.
        period_s: between updates.
        learn: whether the period is assumed.
    """

    name: str
    scope: str
    file: Path
    period_s: float
    learn: bool


def readings(
    gpu: str | int,  # noqa: ARG001 - none of them is a CUDA device's
    *,
    responses: Callable[[str], Response | None],
    now: Callable[[], float] = time.monotonic,
    sysfs: str | Path | None = None,
) -> list[Reading]:
    """The power of each AMD GPU and each Grace, and the sum over sockets."""
    root = Path(sysfs or ROOT)
    ordered = sorted(meters(root), key=lambda meter: (meter.scope, meter.name))
    if not ordered:
        return [unavailable(NAME, f"no AMD GPU and no Grace in {root / 'class/hwmon'}")]
    groups: dict[str, list[PowerMeterFile]] = {}
    for meter in ordered:
        groups.setdefault(meter.scope if meter.scope != "amdgpu" else meter.name, []).append(meter)
    single = {meter.name: [meter] for group in groups.values() if len(group) > 1 for meter in group}
    return [
        Reading(f"{NAME}:{name}", partial(HwmonSampler, name, group, responses, now))
        for name, group in (groups | single).items()
    ]


def meters(root: Path) -> Iterator[PowerMeterFile]:
    """The power files of chips that are known."""
    for folder in sorted((root / "class/hwmon").glob("hwmon*")):
        try:
            chip = read_text(folder / "name")
        except PowerError:
            continue
        files = (folder / "power1_average", folder / "power1_input")
        file = next((file for file in files if file.exists()), None)
        if chip == "amdgpu" and file is not None:
            card = (folder / "device").resolve().name
            yield PowerMeterFile(f"amdgpu-{card}", "amdgpu", file, _AMD_S, learn=True)
        elif chip == "power_meter" and file is not None:
            yield from _of_grace(folder, file)


def _of_grace(folder: Path, file: Path) -> Iterator[PowerMeterFile]:
    try:
        named = _SOCKET.search(read_text(folder / "device/power1_oem_info"))
    except PowerError:
        return
    interval_ms = read_number(folder / "power1_average_interval") or read_number(
        folder / "device/power1_average_interval"
    )
    if named is not None:
        scope = named[1].lower()
        period_s = interval_ms * _MILLI if interval_ms else _GRACE_S
        yield PowerMeterFile(f"{scope}-{named[2]}", scope, file, period_s, learn=not interval_ms)


class HwmonSampler:
    """Implements ``tuner.power.base.PowerSampler`` over power files, whose watts are added.

    Raises:
        SensorUnavailableError: a file cannot be read, or holds no number.
    """

    def __init__(
        self,
        name: str,
        chosen: Sequence[PowerMeterFile],
        responses: Callable[[str], Response | None],
        now: Callable[[], float],
    ) -> None:
        self._now = now
        self.due_s = 0.0  # nobody tells when the next update comes
        self._files: list[SysfsAttribute] = []
        period_s = max(meter.period_s for meter in chosen)
        self._fresh = Freshness(period_s, learn=any(meter.learn for meter in chosen))
        calibrated = responses(f"{NAME}:{name}")
        self.info = SensorInfo(
            name=f"{NAME}:{name}",
            kind="stream",
            scope=chosen[0].scope,
            period_s=period_s,
            poll_interval_s=period_s / _LOOKS,
            resolution=_MICRO,
            response=calibrated or Response("boxcar", window_s=period_s),
        )
        try:
            for meter in chosen:
                self._files.append(SysfsAttribute(meter.file))
            watts = self._watts()
            if watts is not None:
                check_answers(self.info, [watts])
        except PowerError as error:
            self.close()
            why = str(error).removeprefix(f"{NAME}:{name}: ")
            raise SensorUnavailableError(f"{NAME}:{name}: {why}") from error

    def poll(self) -> list[Sample]:
        """The latest update, if there was one since the last call.

        Raises:
            PowerError: a file is gone or cannot be read any more.
        """
        watts = self._watts()
        sample = None if watts is None else self._fresh.look(self._now(), watts)
        return sound(self.info, [] if sample is None else [sample])

    def close(self) -> None:
        """Close the files."""
        while self._files:
            self._files.pop().close()

    def _watts(self) -> float | None:
        values = [file.read() for file in self._files]
        if any(value is None for value in values):
            return None
        return sum(value for value in values if value is not None) * _MICRO
