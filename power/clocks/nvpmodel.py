"""Power modes of a Jetson: told by nvpmodel's files, set and restored by its program.

A mode sets the clocks of GPU, CPUs and memory, and which CPUs run. One that gates other parts of the GPU
takes a reboot, for which nvpmodel asks: it is never set, and the question finds no input. A mode outlives a
reboot, and so does its journal entry.
"""

import os
import re
import subprocess
import time
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from tuner.model.errors import ClockError, ClockPermissionError, ClockRefusedError

from ..base import POWER_PROFILE, SettingState
from .actuator import Ruling, no_ruling
from .devfreq import DEVFREQ, DevfreqActuator
from .journal import lock_now

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
        status, default = _STATUS.search(_text(root / _PRESENT)), None
        names: dict[int, str] = {}
        gating: dict[int, frozenset[str]] = {}
        number = -1
        for line in map(str.strip, _text(root / _CONFIG).splitlines()):
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


def _text(path: Path) -> str:
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
