"""Control of the clocks or the power limit of one GPU, and the limits that an administrator sets.

The administrator's file is ``/etc/tuner/clockd.toml``, which need not be there.

The format, lowest and highest, in MHz and for power limits in W; ``"*"`` is every GPU that is not named::

    [baseline]  # locked again after a reset, as NVML does not tell which lock was there before
    "GPU-6f0d..." = [345, 1410]
    [limits]    # clocks that may be set
    "*" = [345, 1755]
    [power_limits]  # power limits that may be set, in W
    "*" = [200, 600]
    [power_profiles]  # power profiles that may be set, by NVML's IDs
    "*" = [0, 31]
    [users.alice.limits]  # the same tables for a user, or the members of "@group", in place of those
    "*" = [900, 1410]
    [powercap]  # whether energy counters of processors are read for the helper's group
    read = true
"""

import grp
import os
import pwd
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from tuner.model.errors import ClockError, InputError
from tuner.system.untrusted.reading import TEXT_BYTES, load_toml, read_text

from ..base import POWER_LIMIT, POWER_PROFILE, ClockReading, SettingState, kind_of

_NEAR = 3  # clocks named to somebody who asked for one that is not there
EVERY = "*"
_PROFILES = "power_profiles"
_TABLES = {"baseline": "MHz", "limits": "MHz", "power_limits": "W", _PROFILES: "NVML's IDs"}
_USERS, _OF_USERS = "users", ("limits", "power_limits", _PROFILES)
_POWERCAP = "powercap"
_NAME = re.compile(r"\*|[A-Za-z0-9][A-Za-z0-9._:-]*")
_HIGHEST = 100_000  # no clock in MHz and no limit in W is near it: kHz or mW were written
_ENDS = 2

Range = tuple[int, int]


class Actuator(Protocol):
    """Reads and sets one setting of one GPU, its clock or its power limit.

    Opening and reading change nothing. Values are whole numbers in the unit of the setting (``kind_of``).
    Whoever sets has a journal entry on disk before, with what ``before`` says, and calls ``restore`` with it
    afterwards: that is ``clockd`` alone.
    """

    @property
    def control(self) -> str:
        """Name of the kind of control, e.g. ``nvml``: first part of a journal's file name."""

    @property
    def gpu(self) -> str:
        """Name of the GPU in this control, the same at every start, e.g. its UUID; fit for a file name."""

    @property
    def name(self) -> str:
        """The GPU for people."""

    def permitted(self) -> bool:
        """True where this process may set it, as far as that can be told without doing so."""

    def listed(self) -> tuple[int, ...]:
        """Values that can be set, whoever may; empty where none can.

        Raises:
            ClockError: the GPU stopped answering.
        """

    def supported(self) -> tuple[int, ...]:
        """Those of them that the administrator allows, highest first.

        Raises:
            ClockError: the GPU stopped answering.
            InputError: the administrator's file is wrong.
        """

    def before(self) -> SettingState:
        """Return the present state that a later ``restore`` needs, as plain JSON values.

        Raises:
            ClockError: it cannot be read, so that nothing may be set.
            InputError: the administrator's file is wrong.
        """

    def set(self, value: int) -> None:
        """Hold the GPU at a supported value.

        Raises:
            ClockRefusedError: it cannot be or may not be (``ClockPermissionError``); nothing was changed.
            ClockError: something went wrong on the way; ``restore`` has to be called.
        """

    def restore(self, old: SettingState, new: int) -> list[str]:
        """Undo what ``set`` did, or had begun to do, and see that it is undone where that can be read.

        Args:
            old: what ``before`` said.
            new: the value that was or was about to be set.

        Returns:
            What was left alone because somebody else has changed it since, for people.

        Raises:
            ClockError: something is still as ``set`` left it; it is worth trying again.
        """

    def reset(self) -> None:
        """Give the setting back to driver and configuration, whoever set it; for an explicit order only.

        Raises:
            ClockError: the driver is gone or refuses.
            InputError: the administrator's file is wrong.
        """

    def close(self) -> None:
        """Release the GPU; changes nothing."""


class ClockActuator(Actuator, Protocol):
    """An actuator of a clock, which also tells how the GPU runs."""

    def read(self) -> ClockReading:
        """Present clock and throttle reasons.

        Raises:
            ClockError: the GPU stopped answering.
        """


class ProfileActuator(Actuator, Protocol):
    """An actuator of a power profile, whose values have names.

    Attributes:
        sets_clocks: a profile sets the clock, too, so that nobody else may hold it.
    """

    sets_clocks: bool

    def names(self) -> dict[str, int]:
        """Supported values by name.

        Raises:
            ClockError: the GPU stopped answering.
            InputError: the administrator's file is wrong.
        """

    def why_not(self, name: str) -> str:
        """The reason that a profile of that name is not among them, for people; empty where there is none."""


@dataclass(frozen=True)
class ClockPaths:
    """Paths of NVML, the clock devices, the administrator's file, journals and the helper's socket.

    Attributes:
        library: path of libnvidia-ml.so.1, or None for the one the system loader finds.
        devfreq: the kernel's class of devices with a scalable clock.
        config: the administrator's file, see ``load_config``.
        directory: of journals and locks; None for the default of ``journal.runtime_directory``.
        socket: of ``tuner-clockd``.
    """

    library: str | None = None
    devfreq: Path = Path("/sys/class/devfreq")
    config: Path = Path("/etc/tuner/clockd.toml")
    directory: Path | None = None
    socket: Path = Path("/run/tuner/clockd.sock")


@dataclass(frozen=True)
class ClockRules:
    """Administrator's rules for one GPU; both ends of ranges are included.

    Attributes:
        limits_mhz: clocks that may be set; None for all that are supported.
        baseline_mhz: range to lock the GPU to after a reset; None to leave it unlocked.
        power_limits_w: power limits that may be set; None for all that are supported.
        power_profiles: power profiles that may be set, by ID; None for all that are supported.
    """

    limits_mhz: Range | None = None
    baseline_mhz: Range | None = None
    power_limits_w: Range | None = None
    power_profiles: Range | None = None

    def allowed(self, values: Sequence[int], control: str = "") -> tuple[int, ...]:
        """Those of some values that may be set, highest first: of clocks, or what another control sets."""
        ranges = {POWER_LIMIT: self.power_limits_w, POWER_PROFILE: self.power_profiles}
        low, high = ranges.get(control, self.limits_mhz) or (0, max(values, default=0))
        return tuple(sorted({value for value in values if low <= value <= high}, reverse=True))


Ruling = Callable[[str], ClockRules]
"""Function that returns the rules for the GPU of that name; called to set a clock, not to read one."""


def no_ruling(_gpu: str) -> ClockRules:
    """Rules nothing."""
    return ClockRules()


def demand(actuator: Actuator, value: int) -> None:
    """Refuse a value that an actuator does not support.

    Raises:
        ClockError: the message names the nearest ones.
    """
    kind, supported = kind_of(actuator.control), actuator.supported()
    if not supported:
        raise ClockError(f"the {kind.name} of {actuator.name} cannot be set: use {kind.option} off")
    if value not in supported:
        nearest = sorted(supported, key=lambda supported_value: abs(supported_value - value))[:_NEAR]
        near = ", ".join(map(str, sorted(nearest)))
        raise ClockError(
            f"{actuator.name} has no {kind.value} of {value} {kind.unit} that may be set; near it are {near}"
        )


@dataclass(frozen=True)
class ClockConfig:
    """Ranges by GPU, in MHz and for power limits in W: a UUID, a devfreq node, or ``*`` for all others.

    ``reads_powercap`` says whether energy counters are read for others. ``users`` has the same of users, and
    of groups as ``@name``.
    """

    baseline: Mapping[str, Range] = field(default_factory=dict)
    limits: Mapping[str, Range] = field(default_factory=dict)
    power_limits: Mapping[str, Range] = field(default_factory=dict)
    power_profiles: Mapping[str, Range] = field(default_factory=dict)
    reads_powercap: bool = False
    users: Mapping[str, "ClockConfig"] = field(default_factory=dict)

    def rules(self, gpu: str, user: int | None = None) -> ClockRules:
        """Return the rules for one GPU: a user's own go before those of groups, and these before all others.

        Args:
            gpu: its name.
            user: number of the user who is to set it, as the kernel tells it; None for nobody's rules.
        """
        names = _names_of(user) if self.users and user is not None else ()
        configs = [*(self.users[name] for name in names if name in self.users), self]

        def ruled(table: str) -> Range | None:
            tables = (getattr(config, table) for config in configs)
            found = (ranges.get(gpu, ranges.get(EVERY)) for ranges in tables)
            return next((ends for ends in found if ends is not None), None)

        return ClockRules(*map(ruled, ("limits", "baseline", "power_limits", _PROFILES)))


def _names_of(user: int) -> list[str]:
    """The names that a user's rules may stand under: its own, its number, and its groups."""
    try:
        known = pwd.getpwuid(user)
    except KeyError:
        return [str(user)]
    groups = []
    for number in os.getgrouplist(known.pw_name, known.pw_gid):
        with suppress(KeyError):
            groups.append(f"@{grp.getgrgid(number).gr_name}")
    return [known.pw_name, str(user), *groups]


def strangers(path: Path, config: ClockConfig) -> list[str]:
    """Warnings of the users and groups of a file that this machine does not know."""
    found = []
    for name in config.users:
        bare, *kinds = name.removeprefix("@"), "user", "group"
        kind, other = reversed(kinds) if name.startswith("@") else kinds
        if not (_is_known(kind, bare) or name.isdecimal()):  # a number is a user whom nobody need know
            right = f"`getent {'group' if kind == 'group' else 'passwd'}` lists those there are"
            if _is_known(other, bare):
                right = (
                    f'there is a {other} of this name, which is written "{"@" * (other == "group")}{bare}"'
                )
            found.append(
                f'{path}: {_USERS}."{name}": there is no such {kind}, and its rules hold for nobody: {right}'
            )
    return found


def _is_known(kind: str, name: str) -> bool:
    """True for a user or a group that this machine knows."""
    try:
        (pwd.getpwnam if kind == "user" else grp.getgrnam)(name)
    except (KeyError, ValueError):  # ValueError: a NUL
        return False
    return True


def load_config(path: Path) -> ClockConfig:
    """Read the file; without one, nothing is ruled.

    Raises:
        InputError: it cannot be read or understood; the message names file and key.
    """
    try:
        document = load_toml(read_text(path, TEXT_BYTES))
    except FileNotFoundError:
        return ClockConfig()
    except (OSError, ValueError) as error:  # ValueError: not UTF-8, or not TOML
        raise InputError(f"{path}: {error}") from error
    unknown = sorted(document.keys() - {*_TABLES, _POWERCAP, _USERS})
    if unknown:
        raise InputError(
            f"{path}: unknown key {unknown[0]!r}; there may be [baseline], [limits], [power_limits],"
            " [power_profiles], [users] and [powercap]"
        )
    ranges = {table: _ranges(path, table, document.get(table, {})) for table in _TABLES}
    users = document.get(_USERS, {})
    for name, tables in users.items() if isinstance(users, dict) else [("", None)]:
        if not isinstance(tables, dict) or not tables.keys() <= set(_OF_USERS):
            raise InputError(
                f"{path}: {_USERS}.{name}: there may be tables {', '.join(_OF_USERS)} of a user or @group"
            )
    powercap = document.get(_POWERCAP, {})
    understood = isinstance(powercap, dict) and powercap.keys() <= {"read"}
    reads = powercap.get("read", False) if understood else None
    if not isinstance(reads, bool):
        raise InputError(f"{path}: {_POWERCAP} must be a table with read = true or false")
    own = {}
    for name, tables in users.items():
        limits, watts, profiles = (_ranges(path, table, tables.get(table, {}), name) for table in _OF_USERS)
        own[name] = ClockConfig(limits=limits, power_limits=watts, power_profiles=profiles)
    return ClockConfig(**ranges, reads_powercap=reads, users=own)


def _ranges(
    path: Path,
    table: str,
    entries: Any,  # noqa: ANN401 - whatever TOML holds
    user: str = "",
) -> dict[str, Range]:
    unit, least = _TABLES[table], 0 if table == _PROFILES else 1
    table = f"{_USERS}.{user}.{table}" if user else table
    if not isinstance(entries, dict):
        raise InputError(f'{path}: {table} must be a table of ranges, e.g. "*" = [345, 1410]')
    for name, ends in entries.items():
        if not _NAME.fullmatch(name):
            raise InputError(f'{path}: {table}.{name!r}: name a GPU by its UUID or devfreq node, or "*"')
        # bool is an int to Python, and no clock
        whole = isinstance(ends, list) and len(ends) == _ENDS and all(type(end) is int for end in ends)
        if not whole or not least <= ends[0] <= ends[1] <= _HIGHEST:
            raise InputError(f"{path}: {table}.{name}: {ends!r} is not [lowest, highest] in {unit}")
    return {name: (ends[0], ends[1]) for name, ends in entries.items()}
