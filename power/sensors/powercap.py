"""Energy of processor packages and of DRAM from the kernel's ``powercap`` zones (RAPL).

A zone counts microjoules from 0 to ``max_energy_range_uj``, where it begins at 0 again: after some minutes
under load. The processor updates it about every millisecond, so that a read is of the millisecond before it
(Intel SDM, volume 3, "RAPL interfaces"). The kernel names zones ("Power Capping Framework"): ``package-0``,
inside of it ``core``, ``uncore`` and ``dram``, and beside it ``psys``, the platform with all its packages.
"""

import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

from tuner.model.errors import PowerError, SensorUnavailableError

from ..base import Reading, Response, Sample, SensorInfo
from ..clocks.clockd import HelperCounter
from ..clocks.clockd_client import SOCKET
from .attributes import RANGE, PowercapZone, SysfsAttribute, zones
from .changes import StallDetector
from .rails import unavailable

NAME = "powercap"
ROOT = "/sys"
HELPER = SOCKET
COUNTER = "energy_uj"
"""The file of a zone's counter."""

_MICRO = 1e-6
_LOOK_S = 0.02  # a read takes some 10 µs of a core, and of the package that is measured
_UPDATE_S = 0.001  # between two updates of a zone
_STEP_J = 2.0**-14  # the coarsest unit that is common
_MOST_W = 2000.0  # no package draws more: a counter that went back by more was reset, and did not wrap
_SILENT_S = 5.0  # every zone counts all the time
_SQRT_12 = 12.0**0.5


def readings(
    gpu: str | int,  # noqa: ARG001 - a host has its own
    *,
    responses: Callable[[str], Response | None],
    now: Callable[[], float] = time.monotonic,
    sysfs: str | Path | None = None,
) -> list[Reading]:
    """All packages together, all DRAM, the platform, and each zone where there are several."""
    root = Path(sysfs or ROOT)
    listed = zones(root)
    if not listed:
        where = root / "class/powercap"
        return [unavailable(NAME, f"no RAPL zone in {where}: the processor, or a virtual machine, has none")]
    groups = {
        domain: [zone for zone in listed if zone.domain == domain] for domain in ("package", "dram", "psys")
    }
    several = {zone.name: [zone] for zones_ in groups.values() if len(zones_) > 1 for zone in zones_}
    named = {**{domain: group for domain, group in groups.items() if group}, **several}
    return [
        Reading(f"{NAME}:{name}", partial(PowercapSampler, name, group, responses, now))
        for name, group in named.items()
    ]


class ZoneCounter:
    """Joules of a zone since it was opened, over the wraps of its counter.

    Raises:
        PowerError: it cannot be read, has counted nothing, or does not tell where it begins anew: joules
            would be lost, and it must not be left out of a sum.
    """

    def __init__(self, zone: PowercapZone, now: Callable[[], float]) -> None:
        if zone.range_uj <= 0:
            raise PowerError(
                f"{zone.folder / RANGE}: is missing or 0, so that nobody knows where {zone.name} begins anew"
            )
        self._zone = zone
        self._silence = StallDetector(f"{zone.folder / COUNTER}", _SILENT_S, now)
        self._file = _opened(zone)
        try:
            self._last_uj = self._value()
        except BaseException:
            self._file.close()
            raise
        if self._last_uj == 0:
            self._file.close()
            raise PowerError(f"{zone.folder / COUNTER}: reads 0")
        self._total_uj = 0

    def joules(self, elapsed_s: float) -> float:
        """Joules since it was opened.

        A counter that has gone back has wrapped, unless that would be more power than a package draws: then
        it was reset, and the joules go back with it.

        Args:
            elapsed_s: since the last call.

        Raises:
            PowerError: it cannot be read any more, or stands still.
        """
        value_uj = self._value()
        grown_uj = value_uj - self._last_uj
        if grown_uj < 0 and (grown_uj + self._zone.range_uj) * _MICRO <= _MOST_W * (elapsed_s + _LOOK_S):
            grown_uj += self._zone.range_uj
        self._silence.note(moved=grown_uj != 0)
        self._last_uj = value_uj
        self._total_uj += grown_uj
        return self._total_uj * _MICRO

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def _value(self) -> int:
        value = self._file.read()
        if value is None:
            raise PowerError(f"{self._zone.folder}: the driver is busy")
        return value


def _opened(zone: PowercapZone) -> SysfsAttribute | HelperCounter:
    """The counter of a zone: its file, or the helper where the file is root's and the helper may read it.

    Raises:
        PowerError: neither can be read; the message says what helps.
    """
    try:
        return SysfsAttribute(zone.folder / COUNTER)
    except PowerError as error:
        if not isinstance(error.__cause__, PermissionError):
            raise
        try:
            return HelperCounter(zone.name, HELPER)
        except PowerError as refusal:
            raise PowerError(f"{error}; {refusal}") from error


class PowercapSampler:
    """Implements ``tuner.power.base.PowerSampler`` over zones, whose joules are added.

    Raises:
        SensorUnavailableError: a zone cannot be read; since 2020 most kernels let root alone.
    """

    def __init__(
        self,
        name: str,
        chosen: Sequence[PowercapZone],
        responses: Callable[[str], Response | None],
        now: Callable[[], float],
    ) -> None:
        self._now = now
        self._counters: list[ZoneCounter] = []
        try:
            for zone in chosen:
                self._counters.append(ZoneCounter(zone, now))
        except PowerError as error:
            self.close()
            raise SensorUnavailableError(f"{NAME}:{name}: {error}") from error
        self._read_s = now()
        self.due_s = self._read_s + _LOOK_S
        longest_s = min(zone.range_uj for zone in chosen) * _MICRO / _MOST_W
        self.info = SensorInfo(
            name=f"{NAME}:{name}",
            kind="counter",
            scope=name,
            period_s=_LOOK_S,
            poll_interval_s=_LOOK_S,
            resolution=_STEP_J,
            response=responses(f"{NAME}:{name}") or Response(),
            longest_pause_s=longest_s,
        )

    def poll(self) -> list[Sample]:
        """The joules now, unless they were read a moment ago.

        Raises:
            PowerError: a zone is gone or cannot be read any more.
        """
        began_s = self._now()
        if began_s < self.due_s:
            return []
        elapsed_s, self._read_s = began_s - self._read_s, began_s
        joules = sum(counter.joules(elapsed_s) for counter in self._counters)
        took_s = self._now() - began_s
        self.due_s = began_s + _LOOK_S
        sigma_s = ((took_s**2 + _UPDATE_S**2) ** 0.5) / _SQRT_12
        return [Sample(began_s + (took_s - _UPDATE_S) / 2.0, joules, sigma_s)]

    def close(self) -> None:
        """Close the files."""
        while self._counters:
            self._counters.pop().close()
