"""The power limit of a Jetson, as far as the kernel tells it: the current limit of a monitored rail.

A power mode sets clocks, and the limit of mean current above which the board's over-current protection lowers
them: ``currN_max`` of the INA3221's ``hwmon`` device, in milliamperes (kernel documentation, "Kernel driver
ina3221"). Times the rail's voltage that is a limit in watts, of this rail and of no other. A limit at the end
of the chip's scale is none.
"""

import time
from collections.abc import Callable
from pathlib import Path

from ..sensors.rails import choices, is_connected, parts

_FULL_SCALE_V = 0.1638  # of the shunt's voltage; data sheet
_SHUNT_OHM = 0.005  # what most modules have, where the driver does not say
_NEAR = 0.99
_MICRO = 1e-6
_KEPT_S = 1.0  # each read is a transfer on a slow bus


class JetsonPowerLimit:
    """Reads the limit of the module's input rail, or, where that has none, of the GPU's.

    Args:
        sysfs: the root of sysfs.
        now: a clock, in seconds.
    """

    def __init__(self, sysfs: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        labels = sorted(sysfs.glob("bus/i2c/devices/*/hwmon/hwmon*/in*_label"))
        rails = [(label.parent, label.name[2:].partition("_")[0], _text(label)) for label in labels]
        self._rails = sorted(
            (rail for rail in rails if is_connected(rail[2]) and _rank(rail[2]) is not None),
            key=lambda rail: _rank(rail[2]) or 0,
        )
        self._seen: tuple[float | None, str] = (None, "gpu")
        self._due_s = -1.0

    def read(self) -> tuple[float | None, str]:
        """Watts and the scope of readings that they apply to; None where no limit is told."""
        if self._now() >= self._due_s:
            found = ((_limit_w(folder, number), name) for folder, number, name in self._rails)
            told = next(((watts, name) for watts, name in found if watts is not None), None)
            self._seen = (None, "gpu") if told is None else (told[0], choices([told[1]])[0].scope)
            self._due_s = self._now() + _KEPT_S
        return self._seen


def _rank(name: str) -> int | None:
    feeds = parts(name)
    if feeds == ("input",):
        return 0
    return 1 if "gpu" in feeds else None


def _limit_w(folder: Path, number: str) -> float | None:
    milliamperes, millivolts = _number(folder / f"curr{number}_max"), _number(folder / f"in{number}_input")
    shunt = _number(folder / f"shunt{number}_resistor")
    if not milliamperes or not millivolts or milliamperes < 0 or millivolts < 0:
        return None
    most_ma = 1e3 * _FULL_SCALE_V / (shunt * _MICRO if shunt else _SHUNT_OHM)
    return None if milliamperes >= _NEAR * most_ma else milliamperes * millivolts * _MICRO


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip()
    except OSError:
        return ""


def _number(path: Path) -> int | None:
    try:
        return int(_text(path))
    except ValueError:
        return None
