"""Throttle reasons of a Jetson's GPU, as far as the kernel tells them.

Two things are told: cooling devices of the thermal framework that are at work (``cur_state`` above 0), and
counts of over-current events (``oc*_event_cnt`` of the hardware monitors). What the firmware does by itself
shows in the clock only.
"""

from pathlib import Path

_THERMAL, _OVER_CURRENT = "sw-thermal-slowdown", "over-current"
# Not fans, CPUs or other engines; older kernels number the coolers of devfreq and do not name the device.
_ABOUT_GPUS = ("gpu", "gv11b", "gp10b", "ga10b", "gb10b", "thermal-throttle", "thermal-devfreq")


class JetsonThrottle:
    """Reads throttle reasons; whatever a board does not have is not told.

    Args:
        sysfs: the root of sysfs.
    """

    def __init__(self, sysfs: Path) -> None:
        devices = sorted(sysfs.glob("class/thermal/cooling_device*"))
        self._coolers = [device / "cur_state" for device in devices if _is_about_gpus(device / "type")]
        self._counters = sorted(sysfs.glob("class/hwmon/hwmon*/oc*_event_cnt"))
        self._events = self._counted()

    def cooling(self) -> bool:
        """True while heat lowers the GPU's clock."""
        return any(_number(path) > 0 for path in self._coolers)

    def reasons(self) -> tuple[str, ...]:
        """What holds the clock back now, or has since the last call."""
        events, self._events = self._events, self._counted()
        return (
            *((_THERMAL,) if self.cooling() else ()),
            *((_OVER_CURRENT,) if self._events > events else ()),
        )

    def _counted(self) -> int:
        return sum(map(_number, self._counters))


def _is_about_gpus(path: Path) -> bool:
    try:
        kind = path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return False
    return any(part in kind for part in _ABOUT_GPUS)


def _number(path: Path) -> int:
    try:
        return int(path.read_text(encoding="utf-8", errors="replace"))
    except (OSError, ValueError):
        return 0
