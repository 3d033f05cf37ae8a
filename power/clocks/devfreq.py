"""GPU clocks, power limits, throttle reasons and power modes of a Jetson."""

import errno
import os
import re
import subprocess
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tuner.model.errors import ClockError, ClockPermissionError, ClockRefusedError

from ..base import POWER_PROFILE, ClockReading, SettingState
from ..nvml.library import gpu_zone, zone_c
from ..sensors.attributes import read_number
from ..sensors.rails import choices, is_connected, parts
from .actuator import Ruling, no_ruling
from .journal import lock_now

# --- The power limit of a Jetson, as far as the kernel tells it: the current limit of a monitored rail.
#
# A power mode sets clocks, and the limit of mean current above which the board's over-current protection
# lowers them: ``currN_max`` of the INA3221's ``hwmon`` device, in milliamperes (kernel documentation, "Kernel
# driver ina3221"). Times the rail's voltage that is a limit in watts, of this rail and of no other. A limit
# at the end of the chip's scale is none.

_FULL_SCALE_V = 0.1638  # of the shunt's voltage; data sheet
_SHUNT_OHM = 0.005  # what most modules have, where the driver does not say
_NEAR = 0.99
_MICRO = 1e-6
_CACHED_S = 1.0  # each read is a transfer on a slow bus


class JetsonPowerLimit:
    """Reads the limit of the module's input rail, or, where that has none, of the GPU's."""

    def __init__(self, sysfs: Path, now: Callable[[], float] = time.monotonic) -> None:
        self._now = now
        labels = sorted(sysfs.glob("bus/i2c/devices/*/hwmon/hwmon*/in*_label"))
        rails = [
            (label.parent, label.name[2:].partition("_")[0], _text_or_none(label) or "") for label in labels
        ]
        self._rails = sorted(
            (rail for rail in rails if is_connected(rail[2]) and _rank(rail[2]) is not None),
            key=lambda rail: _rank(rail[2]) or 0,
        )
        self._latest: tuple[float | None, str] = (None, "gpu")
        self._due_s = -1.0

    def read(self) -> tuple[float | None, str]:
        """Watts and the scope of readings that they apply to; None where no limit is told."""
        if self._now() >= self._due_s:
            self._latest = (None, "gpu")
            for folder, number, name in self._rails:
                watts = _limit_w(folder, number)
                if watts is not None:
                    self._latest = watts, choices([name])[0].scope
                    break
            self._due_s = self._now() + _CACHED_S
        return self._latest


def _rank(name: str) -> int | None:
    feeds = parts(name)
    if feeds == ("input",):
        return 0
    return 1 if "gpu" in feeds else None


def _limit_w(folder: Path, number: str) -> float | None:
    milliamperes = read_number(folder / f"curr{number}_max")
    millivolts = read_number(folder / f"in{number}_input")
    shunt = read_number(folder / f"shunt{number}_resistor")
    if not milliamperes or not millivolts or milliamperes < 0 or millivolts < 0:
        return None
    most_ma = 1e3 * _FULL_SCALE_V / (shunt * _MICRO if shunt else _SHUNT_OHM)
    return None if milliamperes >= _NEAR * most_ma else milliamperes * millivolts * _MICRO


# --- Throttle reasons of a Jetson's GPU, as far as the kernel tells them.
#
# Two things are told: cooling devices of the thermal framework that are at work (``cur_state`` above 0), and
# counts of over-current events (``oc*_event_cnt`` of the hardware monitors). What the firmware does by itself
# shows in the clock only.

_THERMAL, _OVER_CURRENT = "sw-thermal-slowdown", "over-current"
# Not fans, CPUs or other engines; older kernels number the coolers of devfreq and do not name the device.
_ABOUT_GPUS = ("gpu", "gv11b", "gp10b", "ga10b", "gb10b", "thermal-throttle", "thermal-devfreq")


class JetsonThrottle:
    """Reads throttle reasons; whatever a board does not have is not told."""

    def __init__(self, sysfs: Path) -> None:
        devices = sorted(sysfs.glob("class/thermal/cooling_device*"))
        self._coolers = [
            device / "cur_state"
            for device in devices
            if any(part in (_text_or_none(device / "type") or "") for part in _ABOUT_GPUS)
        ]
        self._counters = sorted(sysfs.glob("class/hwmon/hwmon*/oc*_event_cnt"))
        self._events = self._counted()

    def cooling(self) -> bool:
        """True while heat lowers the GPU's clock."""
        return any((read_number(path) or 0) > 0 for path in self._coolers)

    def reasons(self) -> tuple[str, ...]:
        """Return the causes of a reduced clock, active now or since the last call."""
        events, self._events = self._events, self._counted()
        return (
            *((_THERMAL,) if self.cooling() else ()),
            *((_OVER_CURRENT,) if self._events > events else ()),
        )

    def _counted(self) -> int:
        return sum(read_number(path) or 0 for path in self._counters)


# --- The clocks of a Jetson's GPU, set and restored.

CONTROL = "devfreq"  # how journal entries name this control
DEVFREQ = Path("/sys/class/devfreq")
_THOR = "gpu-gpc-0"  # its graphics clock; gpu-nvd-0 beside it is the video decoder's
_KINDS = ("gv11b", "gp10b", "ga10b", "gb10b", "gpu")  # Xavier, TX2, Orin, Thor; and what several call it
_QOS_HZ = 1000  # kernels since 5.5 keep limits in kHz: a limit read may be this much off the one written
_MEGA = 1_000_000
_PERMILLE_IN_PERCENT = 10.0


@dataclass(frozen=True)
class FrequencyLimits:
    """The clocks between which the governor may choose, in hertz."""

    min_hz: int
    max_hz: int


def put_number(path: Path, value: int) -> None:
    """Write an attribute in one call, so that it is changed or is not."""
    file = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(file, f"{value}\n".encode())
    finally:
        os.close(file)


class DevfreqActuator:
    """Implements ``ClockActuator`` over devfreq.

    Args:
        gpu: the node's name, e.g. ``17000000.gpu``, or the CUDA UUID of the board's one GPU.
        root: the kernel's class of devices with a scalable clock.
        rules: what the administrator rules for a node.
        put: writes a limit.

    Raises:
        ClockError: this machine has no such GPU.
    """

    control = CONTROL

    def __init__(
        self,
        gpu: str | int,
        *,
        root: Path = DEVFREQ,
        rules: Ruling = no_ruling,
        put: Callable[[Path, int], None] = put_number,
    ) -> None:
        node = find(root)
        if node is None:
            raise ClockError(f"{root} has no node of a Jetson's GPU")
        if (root / str(gpu)).exists() and node.name != gpu:
            raise ClockError(f"{root / str(gpu)} is no GPU; that of this board is {node.name}")
        self._node = node
        self._rules = rules
        self._put = put
        self._throttle = JetsonThrottle(root.parent.parent)
        self._limit = JetsonPowerLimit(root.parent.parent)
        self._zone = gpu_zone(root.parent / "thermal")
        self._cool: FrequencyLimits | None = None  # limits that were read while no heat hid them

    @property
    def gpu(self) -> str:
        """Name of the node."""
        return self._node.name

    @property
    def name(self) -> str:
        """The GPU for people."""
        return f"GPU {self._node.name}"

    def permitted(self) -> bool:
        """See ``Actuator.permitted``."""
        return all(os.access(self._node / name, os.W_OK) for name in ("min_freq", "max_freq"))

    def listed(self) -> tuple[int, ...]:
        """See ``Actuator.listed``; rounded to whole megahertz."""
        return tuple(self._clocks())

    def supported(self) -> tuple[int, ...]:
        """See ``Actuator.supported``."""
        return self._rules(self.gpu).allowed(self.listed())

    def read(self) -> ClockReading:
        """See ``ClockActuator.read``; None for a GPU whose power is gated."""
        try:
            mhz = int(_text(self._node / "cur_freq")) / _MEGA
        except (OSError, ValueError):
            mhz = 0.0
        celsius = None if self._zone is None else zone_c(self._zone)
        return ClockReading(mhz or None, self._throttle.reasons(), *self._limit.read(), temperature_c=celsius)

    def before(self) -> SettingState:
        """See ``Actuator.before``: limits in hertz; governor and power gating to see whether they change."""
        limits = self._unheated(self._limits())
        self._cool = limits
        return {"min_hz": limits.min_hz, "max_hz": limits.max_hz, **self._surroundings()}

    def set(self, value: int) -> None:
        """See ``Actuator.set``."""
        hertz = self._hertz(value)
        if not self.permitted():
            raise ClockPermissionError(_how_to_set(self._node))
        failures = self._write(writes(self._limits(), FrequencyLimits(hertz, hertz)))
        present = self._limits()
        is_set = _same(present.min_hz, hertz) and _same(present.max_hz, hertz)
        if failures or not (is_set or self._throttle.cooling()):
            why = "; ".join(failures) or f"limits are {_in_mhz(present)} instead"
            raise ClockError(f"{self.name} cannot be set to {value} MHz: {why}")

    def restore(self, old: SettingState, new: int) -> list[str]:
        """See ``Actuator.restore``."""
        match old:
            case {"min_hz": int(low), "max_hz": int(high)}:
                before = FrequencyLimits(low, high)
            case _:
                raise ClockError(f"the limits {self.gpu} had before are not understood: {dict(old)}")
        ours_hz, present = self._hertz(new), self._limits()
        cooling = self._throttle.cooling()
        target = FrequencyLimits(
            *(
                was if _ours(now, ours_hz, cooling=cooling) else now
                for now, was in ((present.min_hz, before.min_hz), (present.max_hz, before.max_hz))
            )
        )
        failures = self._write(writes(present, target))
        notes = self._left(target, before, old)
        if failures:
            raise ClockError(f"{self.name} cannot be restored: {'; '.join([*failures, *notes])}")
        after = self._limits()
        if not cooling and not (_same(after.min_hz, target.min_hz) and _same(after.max_hz, target.max_hz)):
            raise ClockError(f"{self.name} is at {_in_mhz(after)}, not at {_in_mhz(target)}")
        return notes

    def reset(self) -> None:
        """See ``Actuator.reset``: the whole range of clocks, as after a boot."""
        clocks_hz = self._clocks().values()
        if not clocks_hz:
            raise ClockError(f"{self.name} tells no available clocks")
        failures = self._write(writes(self._limits(), FrequencyLimits(min(clocks_hz), max(clocks_hz))))
        if failures:
            raise ClockError(f"{self.name} cannot be reset: {'; '.join(failures)}")

    def close(self) -> None:
        """Nothing is held open."""

    def _clocks(self) -> dict[int, int]:
        """Available clocks: megahertz to hertz."""
        try:
            words = _text(self._node / "available_frequencies").split()
            return {round(int(word) / _MEGA): int(word) for word in words}
        except (OSError, ValueError):
            return {}

    def _hertz(self, mhz: int) -> int:
        return self._clocks().get(mhz, mhz * _MEGA)

    def _limits(self) -> FrequencyLimits:
        try:
            return FrequencyLimits(
                *(int(_text(self._node / name).split()[0]) for name in ("min_freq", "max_freq"))
            )
        except (OSError, ValueError, IndexError) as error:
            raise ClockError(f"the limits of {self.name} cannot be read: {error}") from error

    def _unheated(self, present: FrequencyLimits) -> FrequencyLimits:
        """The limits as they are set: what the kernel shows while heat lowers them is not to stay."""
        if not self._throttle.cooling() or present.max_hz >= max(self._clocks().values(), default=0):
            return present
        if self._cool is None:
            raise ClockError(
                f"heat hides the limits of {self.name}, {_in_mhz(present)} now: let it cool down"
            )
        return self._cool

    def _surroundings(self) -> dict[str, str]:
        """Governor and power gating, where the board has them."""
        paths = {"governor": "governor", "railgate": "device/railgate_enable"}
        texts = {key: _text_or_none(self._node / path) for key, path in paths.items()}
        return {key: text for key, text in texts.items() if text is not None}

    def _left(self, target: FrequencyLimits, before: FrequencyLimits, old: SettingState) -> list[str]:
        """Return messages for the values that others have changed meanwhile, which are left so."""
        now = self._surroundings()
        pairs = (
            *(
                (f"{key}_freq", getattr(target, f"{key}_hz"), getattr(before, f"{key}_hz"))
                for key in ("min", "max")
            ),
            *((key, now[key], old[key]) for key in now if key in old),
        )
        return [f"{what} is {is_now}, and was {was}: left so" for what, is_now, was in pairs if is_now != was]

    def _write(self, changes: Sequence[tuple[str, int]]) -> list[str]:
        """Write limits, going on past failures, which are returned."""
        failures = []
        for name, hertz in changes:
            try:
                self._put(self._node / name, hertz)
            except OSError as error:  # noqa: PERF203 - two
                if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
                    failures.append(_how_to_set(self._node))
                else:
                    failures.append(f"{self._node / name} refuses {hertz}: {error.strerror}")
        return failures


def find(root: Path = DEVFREQ) -> Path | None:
    """The node of this board's GPU, whatever it is called here; None where there is none."""
    try:
        nodes = sorted(root.iterdir())
    except OSError:
        return None
    if root / _THOR in nodes:
        return root / _THOR
    return next((node for node in nodes if _is_gpu(node)), None)


def load_percent(root: Path = DEVFREQ) -> float | None:
    """Return the load of this board's GPU in percent, as its driver reports it; None without a report.

    Args:
        root: the kernel's class of devices with a scalable clock.
    """
    node = find(root)
    try:
        return None if node is None else int(_text(node / "device/load")) / _PERMILLE_IN_PERCENT
    except (OSError, ValueError):
        return None


def writes(present: FrequencyLimits, target: FrequencyLimits) -> list[tuple[str, int]]:
    """The writes that lead from one pair of limits to another, without the lower one above the upper between.

    The kernel refuses, or bends, what would cross: the upper limit goes first when it rises, else the lower.
    """
    changes = []
    if target.min_hz != present.min_hz:
        changes.append(("min_freq", target.min_hz))
    if target.max_hz != present.max_hz:
        changes.append(("max_freq", target.max_hz))
    return changes[::-1] if target.max_hz > present.max_hz else changes


def _is_gpu(node: Path) -> bool:
    """By the end of its name or by what the device tree calls it; other makers have nodes called gpu too."""
    tree = node / "device/of_node"  # properties of the device tree, whose texts end with NUL
    names = {node.name.rpartition(".")[2], _text_or_none(tree / "name")}
    compatible = _text_or_none(tree / "compatible")
    return bool(names & set(_KINDS)) and (not compatible or "nvidia," in compatible)


def _ours(present_hz: int, ours_hz: int, *, cooling: bool) -> bool:
    """True for a limit as we set it, or as the thermal framework shows one that it has lowered."""
    return _same(present_hz, ours_hz) or (cooling and present_hz < ours_hz)


def _same(limit_hz: int, other_hz: int) -> bool:
    return abs(limit_hz - other_hz) < _QOS_HZ


def _in_mhz(limits: FrequencyLimits) -> str:
    return f"{limits.min_hz / _MEGA:g} to {limits.max_hz / _MEGA:g} MHz"


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace").strip("\0\n ")


def _text_or_none(path: Path) -> str | None:
    """The text of an attribute that a board may not have."""
    try:
        return _text(path)
    except OSError:
        return None


def _how_to_set(node: Path) -> str:
    return (
        f"this process may not write {node}/min_freq and max_freq: let an administrator start "
        "tuner-clockd.socket and put you into the group tuner-clocks, run as root, or use --clocks off"
    )


# --- Power modes of a Jetson: told by nvpmodel's files, set and restored by its program.
#
# A mode sets the clocks of GPU, CPUs and memory, and which CPUs run. One that gates other parts of the GPU
# takes a reboot, for which nvpmodel asks: it is never set, and the question finds no input. A mode outlives a
# reboot, and so does its journal entry.

_MODEL = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>")
_DEFAULT = re.compile(r"<\s*PM_CONFIG\s+DEFAULT=(\d+)\s*>")
_GATING = re.compile(r"\S+\s+\w+_PG_MASK\s+\S+")  # a part of the GPU is off: what a reboot changes
_STATUS = re.compile(r"pmode:(\d+)")
_CONFIG, _PRESENT, _PROGRAM = "etc/nvpmodel.conf", "var/lib/nvpmodel/status", "usr/sbin/nvpmodel"
_RETRY_S = 0.02
_PATIENCE_S = 6.0  # two calls fit into the patience of the helper's clients and of its watchdog


@dataclass(frozen=True)
class PowerModes:
    """The power modes of a board.

    Attributes:
        present: number of the mode that holds; None where that is not told.
        names: of all modes, by number.
        gating: lines of each mode that gate parts of the GPU.
        default: number of the mode of a new system; None where that is not told.
    """

    present: int | None = None
    names: dict[int, str] = field(default_factory=dict)
    gating: dict[int, frozenset[str]] = field(default_factory=dict)
    default: int | None = None

    @classmethod
    def read(cls, root: Path) -> "PowerModes":
        """The modes by nvpmodel's files, as far as these can be read.

        Args:
            root: below which ``/etc`` and ``/var`` are.
        """
        status, default = _STATUS.search(_contents(root / _PRESENT)), None
        names: dict[int, str] = {}
        gating: dict[int, frozenset[str]] = {}
        number = -1
        for line in map(str.strip, _contents(root / _CONFIG).splitlines()):
            if model := _MODEL.match(line):
                number = int(model[1])
                names[number], gating[number] = model[2], frozenset()
            elif found := _DEFAULT.match(line):
                default, number = int(found[1]), -1
            elif number in gating and _GATING.fullmatch(line):
                gating[number] |= {line}
        return cls(None if status is None else int(status[1]), names, gating, default)

    def named(self, number: int | None) -> str:
        """Name of a mode, for people."""
        return "no known mode" if number is None else self.names.get(number, f"mode {number}")

    @property
    def reachable(self) -> tuple[int, ...]:
        """Numbers of the modes that take no reboot from the present one, that one among them."""
        if self.present not in self.names:
            return ()
        return tuple(sorted(n for n in self.names if self.gating[n] == self.gating[self.present]))


def _contents(path: Path) -> str:
    """The text of a file; empty where it cannot be read."""
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return ""


def has_modes(devfreq: Path = DEVFREQ) -> bool:
    """True on a board with nvpmodel."""
    return (_root(devfreq) / _PROGRAM).exists()


def _root(devfreq: Path) -> Path:
    """The folder above ``/sys``, by the kernel's class of devices with a scalable clock."""
    return devfreq.parent.parent.parent


class NvpmodelActuator:
    """Implements ``ProfileActuator`` over the power modes of a Jetson; its values are their numbers.

    Args:
        gpu: see ``DevfreqActuator``.
        devfreq: the kernel's class of devices with a scalable clock; files of nvpmodel are where it is.
        rules: what the administrator rules for a node.

    Raises:
        ClockError: this machine has no such GPU.
    """

    control = POWER_PROFILE
    sets_clocks = True

    def __init__(self, gpu: str | int, *, devfreq: Path = DEVFREQ, rules: Ruling = no_ruling) -> None:
        self._clock = DevfreqActuator(gpu, root=devfreq)
        self._root = _root(devfreq)
        self._rules = rules
        self._returns = False

    @property
    def gpu(self) -> str:
        """Name of the GPU's node."""
        return self._clock.gpu

    @property
    def name(self) -> str:
        """The GPU for people."""
        return self._clock.name

    def permitted(self) -> bool:
        """See ``Actuator.permitted``: who may write nvpmodel's state."""
        return os.access(self._root / _PRESENT, os.W_OK) and os.access(self._root / _PROGRAM, os.X_OK)

    def names(self) -> dict[str, int]:
        """See ``ProfileActuator.names``: as nvpmodel's configuration has them."""
        modes = self._modes()
        return {modes.named(number): number for number in sorted(self.supported())}

    def why_not(self, name: str) -> str:
        """See ``ProfileActuator.why_not``."""
        modes = self._modes()
        if name in modes.names.values() and name not in map(modes.named, modes.reachable):
            return f"{name} takes a reboot from {modes.named(modes.present)}, and is not set here"
        return ""

    def listed(self) -> tuple[int, ...]:
        """See ``Actuator.listed``."""
        return self._modes().reachable

    def supported(self) -> tuple[int, ...]:
        """See ``Actuator.supported``."""
        return self._rules(self.gpu).allowed(self.listed(), self.control)

    def before(self) -> SettingState:
        """See ``Actuator.before``: the mode, and the limits of the GPU's clock to see what became of them.

        Raises:
            ClockError: the clock is locked, which no mode would bring back, or heat hides its limits.
        """
        found, modes = self._clock.before(), self._modes()
        if modes.present is None:
            raise ClockError(f"the power mode of {self.gpu} cannot be read from {self._root / _PRESENT}")
        if found["min_hz"] == found["max_hz"]:
            raise ClockError(
                f"the clock of {self.name} is locked, by jetson_clocks perhaps, and a power mode would undo"
                " that: give it back first, as by jetson_clocks --restore"
            )
        return {"mode": modes.present, **found}

    def set(self, value: int) -> None:
        """See ``Actuator.set``; whether nvpmodel will take the present mode again is tried before."""
        modes = self._modes()
        if value not in modes.reachable or modes.present is None:
            raise ClockRefusedError(f"{modes.named(value)} takes a reboot from {modes.named(modes.present)}")
        if not self.permitted():
            raise ClockPermissionError(
                f"this process may not set the power mode of {self.name}: let an administrator start"
                " tuner-clockd.socket and put you into the group tuner-clocks, run as root, or leave"
                " --power-profiles out"
            )
        if not self._returns and (why := self._run(modes.present)):
            raise ClockRefusedError(f"nvpmodel would not come back to {modes.named(modes.present)}: {why}")
        self._returns = True
        if why := self._run(value):
            raise ClockError(f"nvpmodel did not set {modes.named(value)}: {why}")

    def restore(self, old: SettingState, new: int) -> list[str]:
        """See ``Actuator.restore``."""
        match old:
            case {"mode": int(mode)}:
                pass
            case _:
                raise ClockError(f"the power mode {self.gpu} had before is not understood: {dict(old)}")
        modes = self._modes()
        if modes.present not in (mode, new, None):  # None where a call was killed that wrote it
            return [f"the power mode is {modes.named(modes.present)}, not {modes.named(new)}: left so"]
        if why := self._run(mode):  # also where it is there: a call that was killed may have done a part
            raise ClockError(f"nvpmodel did not come back to {modes.named(mode)}: {why}")
        with suppress(ClockError):  # heat hides what could be compared
            return [
                f"{key} is {now}, and was {old[key]}: {modes.named(mode)} has it so"
                for key, now in self._clock.before().items()
                if now != old.get(key, now)
            ]
        return []

    def reset(self) -> None:
        """See ``Actuator.reset``: the mode of a new system."""
        modes = self._modes()
        if modes.default is None or modes.default not in modes.reachable:
            raise ClockError(
                f"{modes.named(modes.default)} takes a reboot: sudo nvpmodel -m {modes.default}"
                if modes.default in modes.names
                else f"{self._root / _CONFIG} names no mode of a new system"
            )
        if why := self._run(modes.default):
            raise ClockError(f"nvpmodel did not set {modes.named(modes.default)}: {why}")

    def close(self) -> None:
        """Nothing is held open."""

    def _modes(self) -> PowerModes:
        return PowerModes.read(self._root)

    def _run(self, mode: int) -> str:
        """Have nvpmodel set a mode; the reason that it did not, or nothing where it did.

        It holds a lock while it runs, which outlives a caller that is killed: the next one waits for it.
        """
        program = self._root / _PROGRAM
        try:
            turn = os.open(program, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            return f"{program}: {error.strerror}"
        try:
            until_s = time.monotonic() + _PATIENCE_S
            while not lock_now(turn):
                if time.monotonic() > until_s:
                    return f"{program} is at work for another, and does not end"
                time.sleep(_RETRY_S)
            done = subprocess.run(  # noqa: S603 - the board's own program, by its full path
                [str(program), "-m", str(mode)],
                stdin=subprocess.DEVNULL,  # that it may reboot is never said
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                timeout=_PATIENCE_S,
                check=False,
                cwd="/",
                env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "LC_ALL": "C"},
                start_new_session=True,
                pass_fds=[turn],
            )
        except subprocess.TimeoutExpired:
            return f"{program} took more than {_PATIENCE_S:g} s"
        except OSError as error:
            return f"{program}: {error.strerror}"
        finally:
            os.close(turn)
        said = " ".join(done.stdout.decode(errors="replace").split())
        if done.returncode == 0 and self._modes().present == mode:
            return ""
        asks = "it asks for a reboot: " if "reboot" in said.lower() else ""
        return f"{asks}{said or f'exit code {done.returncode}'}"
