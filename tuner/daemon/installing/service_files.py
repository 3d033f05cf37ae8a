"""The files of the service with their paths, and the commands that activate them."""

import os
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from tuner.model.errors import InputError
from tuner.system.user_folders import user_home

SHIPPED_PREFIX = "/opt/tuner"  # what the units name as they are shipped
WORKER_UNIT = "tuner-worker@{}.service"  # one for each device
SYSTEM_UNITS = (
    *("tuner-clockd.socket", "tuner-clockd.service", "tuner.socket", "tuner.service"),
    WORKER_UNIT.format(""),
)
USER_UNITS = ("tuner.socket", "tuner.service")
TCP = "tcp.conf"  # a drop-in: the way to the loopback
STARTED = ("tuner-clockd.socket", "tuner.socket", "tuner.service")  # in this order
_LAUNCHER = """#!/bin/sh
exec {prefix}/bin/tuner "$@"
"""
_PLAIN = re.compile(r"/[A-Za-z0-9/_.+-]*")  # what neither a shell nor systemd reads in a way of its own


@dataclass(frozen=True)
class Item:
    """A file to install.

    Attributes:
        path: where.
        text: what is in it.
        settings: whether it is the administrator's: what is there and not as it was installed stays.
        program: whether it can be run.
    """

    path: Path
    text: str
    settings: bool = False
    program: bool = False


@dataclass(frozen=True)
class Site:
    """A machine, the image of one, or a user's part of one, and the program on it.

    Attributes:
        prefix: the program's environment; ``prefix/bin/tuner`` is what the service runs.
        root: below which all is written; other than ``/`` nothing is started.
        config: of a user: the directory of configuration; None for the whole machine.
        jetson: with what the GPU of a Jetson needs.
        tcp: with a way to the loopback.
        shared: further files by their path below ``/usr/local/share``: manual pages, completions.
    """

    prefix: Path
    root: Path = Path("/")
    config: Path | None = None
    jetson: bool = False
    tcp: bool = False
    shared: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not _PLAIN.fullmatch(str(self.prefix)):
            raise InputError(
                f"--prefix {self.prefix}: must be a path from the root of letters, digits and ._+-, such as"
                f" {SHIPPED_PREFIX}: units hold it"
            )

    @property
    def user(self) -> bool:
        """True if the installation is for one user."""
        return self.config is not None

    @property
    def here(self) -> bool:
        """True if the installation is on this machine, whose systemd can be notified."""
        return self.root == Path("/")

    @property
    def settings(self) -> Path:
        """Directory of daemon.toml and of the list of what was installed."""
        return self.at("/etc/tuner") if self.config is None else self.config / "tuner"

    @property
    def units(self) -> Path:
        """Directory of the units."""
        return self.at("/etc/systemd/system") if self.config is None else self.config / "systemd/user"

    @property
    def started(self) -> tuple[str, ...]:
        """Units that are enabled and started."""
        return STARTED if self.config is None else USER_UNITS

    def at(self, path: str) -> Path:
        """A path of the machine as this process reaches it."""
        return self.root / path.lstrip("/")

    def systemctl(self, *words: str) -> tuple[str, ...]:
        """A command to the site's systemd."""
        where = ("--user",) if self.user else () if self.here else (f"--root={self.root}",)
        return ("systemctl", *where, *words)

    @property
    def worker_settings(self) -> Path:
        """File with the address of the scheduler that workers of this machine have."""
        return self.settings / "worker.env"

    def items(self) -> list[Item]:
        """All files."""
        return list(self._user_items() if self.user else self._system_items())

    def directories(self) -> list[Path]:
        """Directories for the administrator's own files."""
        return [] if self.user else [self.settings / "kernels.d"]

    def _system_items(self) -> Iterator[Item]:
        for name in SYSTEM_UNITS:
            yield Item(self.units / name, self._unit(name))
        for name, enabled in (("jetson.conf", self.jetson), (TCP, self.tcp)):
            for unit in SYSTEM_UNITS if enabled else ():
                drop_in = f"{unit}.d/{name}"
                if (_shipped() / drop_in).is_file():
                    yield Item(self.units / drop_in, self._unit(drop_in))
        yield Item(self.at("/etc/sysusers.d/tuner.conf"), _text("tuner.sysusers.conf"))
        if self.jetson:
            groups = self.at("/etc/sysusers.d/tuner-jetson.conf")
            yield Item(groups, _text("tuner-jetson.sysusers.conf"))
        yield Item(self.at("/etc/tmpfiles.d/tuner.conf"), _text("tuner.tmpfiles.conf"))
        for name in ("daemon.toml", "clockd.toml"):
            yield Item(self.settings / name, _text(name), settings=True)
        launcher = _LAUNCHER.format(prefix=self.prefix)
        yield Item(self.at("/usr/local/bin/tuner"), launcher, settings=True, program=True)
        for name, text in self.shared.items():
            yield Item(self.at(f"/usr/local/share/{name}"), text)

    def _user_items(self) -> Iterator[Item]:
        for name in USER_UNITS:
            yield Item(self.units / name, self._unit(f"user/{name}"))
        yield Item(self.settings / "daemon.toml", _text("daemon.toml"), settings=True)

    def _unit(self, name: str) -> str:
        return _text(name).replace(f"{SHIPPED_PREFIX}/bin/", f"{self.prefix}/bin/")


def is_jetson(root: Path = Path("/")) -> bool:
    """Return True if the machine is a board with a GPU that is no PCI device."""
    try:
        return b"nvidia,tegra" in (root / "proc/device-tree/compatible").read_bytes()
    except OSError:
        return False


def user_config() -> Path:
    """The user's directory of configuration, as systemd's ``%E`` has it."""
    named = Path(os.environ.get("XDG_CONFIG_HOME", ""))
    return named if named.is_absolute() else user_home() / ".config"


def _shipped() -> Path:
    """Folder of the units that come with the package, installed or in a checkout."""
    installed = Path(str(files("tuner"))) / "systemd"
    # an editable install maps packages only; systemd is data beside the package then
    return installed if installed.is_dir() else Path(__file__).parents[3] / "systemd"


def _text(name: str) -> str:
    return (_shipped() / name).read_text(encoding="utf-8")
