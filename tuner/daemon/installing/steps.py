"""The files of the service, the steps that install and remove them, and the record of what was installed."""

import contextlib
import hashlib
import json
import os
import re
import shlex
import shutil
import subprocess
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from importlib.resources import files
from pathlib import Path

from tuner.model.errors import InputError, InstallError
from tuner.system.user_folders import user_home

# --- The files of the service with their paths, and the commands that activate them.

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


# --- The record of installed files, written first, so that an installation can be finished or undone.

NAME = "installed.json"  # in the directory of settings, which root alone writes
JOURNAL = "upgrade.json"  # beside it, of an upgrade that has not ended
_LARGEST_BYTES = 2**20


@dataclass(frozen=True)
class Record:
    """Record of the installed files.

    Attributes:
        files: path -> SHA-256 of what was written; empty where it was there before and is not ours.
        settings: those of the files that the administrator may have edited.
    """

    files: Mapping[str, str] = field(default_factory=dict)
    settings: tuple[str, ...] = ()

    def is_ours(self, path: Path) -> bool:
        """Return True if a file was written by the installer and has not been changed since."""
        written = self.files.get(str(path), "")
        return bool(written) and written == digest_of(path)

    def document(self) -> str:
        """As the file has it."""
        return json.dumps({"files": dict(self.files), "settings": self.settings}, indent=2) + "\n"


def read(path: Path) -> Record | None:
    """The record at a path; None where there is none.

    Raises:
        InstallError: it cannot be read or understood.
    """
    try:
        with path.open("rb") as file:
            document = json.loads(file.read(_LARGEST_BYTES))
    except FileNotFoundError:
        return None
    except (OSError, ValueError, RecursionError) as error:
        raise InstallError(f"{path}: the list of installed files cannot be read: {error}") from error
    match document:
        case {"files": dict(files), "settings": list(settings)} if all(
            isinstance(word, str) for word in (*files, *files.values(), *settings)
        ):
            return Record(files, tuple(settings))
    raise InstallError(f"{path}: not a list of installed files; remove it, and install again")


def has_tcp(site: Site) -> bool:
    """True where the service was installed with a way to the loopback.

    Raises:
        InstallError: the record cannot be read.
    """
    had = read(site.settings / NAME)
    return had is not None and any(Path(path).name == TCP for path in had.files)


def digest(text: str) -> str:
    """SHA-256 of a text."""
    return hashlib.sha256(text.encode()).hexdigest()


def digest_of(path: Path) -> str:
    """SHA-256 of a file; empty where there is none."""
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest()
    except OSError:
        return ""


# --- Single steps of installing and removing; each has a description and can be repeated.

_FILE_MODE = 0o644
_PROGRAM_MODE = 0o755
_DIRECTORY_MODE = 0o755
_COMMAND_S = 300.0  # stopping waits for running jobs to store what they have; starting for a database check
_SHOWN_LINES = 5

Command = Callable[[Sequence[str]], None]
"""Runs a command; raises InstallError where it fails."""


@dataclass(frozen=True)
class Step:
    """One thing that is done.

    Attributes:
        words: that tell it before.
        action: does it; what it returns is told after, if anything.
    """

    words: str
    action: Callable[[], str | None]


def write(path: Path, text: str, words: str = "write", *, program: bool = False) -> Step:
    """Put a file in place, whole or not at all, readable by all."""
    mode = _PROGRAM_MODE if program else _FILE_MODE
    return Step(f"{words} {path}", lambda: _write(path, text, mode))


def remove(path: Path) -> Step:
    """Remove a file that may be gone already, and a directory of drop-ins that it leaves empty."""
    return Step(f"remove {path}", lambda: _remove(path))


def remove_empty(directory: Path) -> Step:
    """Remove a directory if nothing is in it."""
    return Step(f"remove {directory} if it is empty", lambda: _remove_empty(directory))


def make(directory: Path) -> Step:
    """Make a directory that all may read."""
    return Step(f"make {directory}", lambda: _make(directory))


def purge(directory: Path) -> Step:
    """Remove a directory with all that is in it; links in it are not followed."""
    return Step(f"remove {directory} and all that is in it", lambda: _purge(directory))


def run(command: Sequence[str], runner: Command) -> Step:
    """Run a command."""
    return Step(f"run {shlex.join(command)}", lambda: runner(command))


def say(words: str) -> Step:
    """Tell what is left alone."""
    return Step(words, lambda: None)


def execute(command: Sequence[str]) -> None:
    """Run a command of this machine.

    Raises:
        InstallError: it is not there, fails or does not end; the message has what it said.
    """
    try:
        done = subprocess.run(  # noqa: S603 - the commands of this package, no shell
            command,
            check=False,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_COMMAND_S,
            stdin=subprocess.DEVNULL,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise InstallError(f"{shlex.join(command)}: {error}") from error
    if done.returncode:
        errors = "; ".join((done.stderr or done.stdout).strip().splitlines()[-_SHOWN_LINES:])
        raise InstallError(f"{shlex.join(command)} ended with {done.returncode}: {errors}")


def _write(path: Path, text: str, mode: int) -> None:
    _make(path.parent)
    draft = ""
    try:
        with tempfile.NamedTemporaryFile(
            "w", dir=path.parent, prefix=f".{path.name}.", delete=False, encoding="utf-8"
        ) as file:
            draft = file.name
            os.fchmod(file.fileno(), mode)
            file.write(text)
            file.flush()
            os.fsync(file.fileno())
        Path(draft).replace(path)
    except OSError as error:
        if draft:
            Path(draft).unlink(missing_ok=True)
        raise InstallError(f"{path}: cannot be written: {error.strerror or error}") from error


def _make(directory: Path) -> None:
    missing = [path for path in (directory, *directory.parents) if not path.exists()]
    try:
        for path in reversed(missing):
            path.mkdir()
            path.chmod(_DIRECTORY_MODE)  # whatever the umask
    except OSError as error:
        raise InstallError(f"{directory}: cannot be made: {error.strerror or error}") from error


def _remove(path: Path) -> None:
    try:
        path.unlink(missing_ok=True)
    except OSError as error:
        raise InstallError(f"{path}: cannot be removed: {error.strerror or error}") from error
    if path.parent.name.startswith("tuner") and path.parent.suffix == ".d":  # of drop-ins for our units
        _remove_empty(path.parent)


def _remove_empty(directory: Path) -> None:
    with contextlib.suppress(OSError):  # it is not there, or something is in it
        directory.rmdir()


def _purge(directory: Path) -> None:
    try:
        if directory.is_dir() and not directory.is_symlink():
            shutil.rmtree(directory)
    except OSError as error:
        raise InstallError(f"{directory}: cannot be removed: {error.strerror or error}") from error


# --- All steps in order, to install and to remove.

STATE = ("/var/lib/tuner", "/var/cache/tuner")  # of the service: results, and what can be made again
_OF_WORKERS = ("/var/lib/tuner-worker", "/var/cache/tuner-worker")


def install(site: Site, runner: Command = execute) -> list[Step]:
    """The steps that install the service, or bring what is installed up to date.

    Raises:
        InstallError: the record of an earlier installation cannot be read.
    """
    placing, again = placed(site)
    # in one call: the daemon ends before the helper that it has clocks of
    restart = [run(site.systemctl("try-restart", *again), runner)] if site.here and again else []
    return [*placing, *registered(site, runner), *restart, enabled(site, runner)]


def placed(site: Site) -> tuple[list[Step], list[str]]:
    """The steps that put all files in place, and the units that then run as they no longer are.

    Raises:
        InstallError: the record of an earlier installation cannot be read.
    """
    listed = site.settings / NAME
    before = read(listed)
    had = before or Record()
    # the program that runs is named last: a change that ends half-way has the files of one of both
    items = sorted(site.items(), key=lambda item: item.path == site.units / "tuner.service")
    new = _recorded(items, had)
    stale = [Path(path) for path in had.files if path not in new.files]
    # until all is done both are recorded: whichever of them is there can be removed then
    begun = Record({**had.files, **new.files}, tuple(dict.fromkeys((*had.settings, *new.settings))))
    files = [step for item in items for step in _placed(item, had)]
    changed = [step.words for step in files if step.words.startswith(("write", "replace"))]
    # a socket keeps its group and its mode until it is made anew
    replaced = [name for name in site.started if f"replace {site.units / name}" in changed]
    sockets = [name for name in replaced if name.endswith(".socket")]
    workers = () if site.user else (WORKER_UNIT.format("*"),)  # of them those that run
    again = [*sockets, "tuner.service", *workers] if before is not None and (changed or stale) else []
    result = [
        *([write(listed, begun.document())] if begun != before else []),
        *files,
        *(make(path) for path in site.directories() if not path.is_dir()),
        *(step for path in stale for step in _removed(path, had)),
    ]
    if begun != new:
        result.append(write(listed, new.document()))
    return result, again


def uninstall(
    site: Site, runner: Command = execute, *, with_results: bool = False, state: Path | None = None
) -> list[Step]:
    """The steps that stop the service and remove what was installed; what stays is named.

    Args:
        site: that it is removed from.
        runner: of commands.
        with_results: remove results, settings and the administrator's drop-ins, too.
        state: directory of results that the settings name; it is never removed.

    Raises:
        InstallError: the record of the installation cannot be read.
    """
    listed = site.settings / NAME
    had = read(listed)
    own = (site.worker_settings, site.settings / JOURNAL)
    ours = {str(listed), *map(str, own), *(had.files if had is not None else ())}
    added = [
        path
        for folder in _drop_in_folders(site)
        for path in sorted(folder.iterdir())
        if str(path) not in ours
    ]
    purged = (
        [purge(folder) for folder in dict.fromkeys(path.parent for path in added)] if with_results else []
    )
    result: list[Step] = []
    if had is None:
        result.append(say(f"nothing is installed: there is no {listed}"))
    else:
        result += _stopped(site, runner)
        of_settings = {
            path for path in had.files if with_results and Path(path).is_relative_to(site.settings)
        }
        result += [
            step for path in had.files if path not in of_settings for step in _removed(Path(path), had)
        ]
    result += purged
    if site.here and (had is not None or purged):
        result.append(run(site.systemctl("daemon-reload"), runner))
    if had is not None and not with_results:
        result += [remove(path) for path in own if path.exists()]
        result += [remove(listed), *(remove_empty(path) for path in site.directories())]
        result.append(remove_empty(site.settings))
    if site.user:
        result += [say(f"keep {path}, which is yours") for path in added]
        return [*result, say("keep the results: they are those of `tuner run`, too")]
    if not with_results:
        added += [
            path for path in sorted(site.settings.rglob("*")) if path.is_file() and str(path) not in ours
        ]
        result += [say(f"keep {path}; --purge removes it") for path in added]
    for path in (*([site.settings] if with_results else []), *map(site.at, (*STATE, *_OF_WORKERS))):
        if path.exists():
            result.append(purge(path) if with_results else say(f"keep {path}; --purge removes it"))
    if state is not None and str(state) not in STATE and site.at(str(state)).exists():
        result.append(say(f"keep {site.at(str(state))}, the results by [service] state of daemon.toml"))
    if (journals := site.at("/run/tuner")).exists():
        result.append(
            say(f"keep {journals}, where root's tuner notes clocks that it has set; a reboot empties it")
        )
    accounts = "the users tuner and tuner-worker, and the groups tuner and tuner-clocks with their members"
    return [*result, say(f"keep {accounts}")]


def _drop_in_folders(site: Site) -> list[Path]:
    """Directories of drop-ins of our units; those of `systemctl set-property` lie beside the others."""
    units = [site.units] if site.user else [site.units, site.at("/etc/systemd/system.control")]
    names = USER_UNITS if site.user else SYSTEM_UNITS
    return [folder for place in units for name in names if (folder := place / f"{name}.d").is_dir()]


def start_workers(
    site: Site, scheduler: str, devices: Sequence[str], runner: Command = execute
) -> list[Step]:
    """The steps that start workers of a scheduler of Dask, now and after every boot.

    Args:
        site: where the service is installed.
        scheduler: its address.
        devices: that have a worker each.
        runner: of commands.

    Raises:
        InputError: no service is installed.
    """
    if not (site.units / WORKER_UNIT.format("")).is_file():
        raise InputError("--service: the units are not here yet: `sudo tuner install-service` installs them")
    units = [WORKER_UNIT.format(device) for device in devices]
    text = f"TUNER_SCHEDULER={scheduler}\n"
    result = [run(site.systemctl("enable", "--now", *units), runner)]
    if digest_of(site.worker_settings) != digest(text):  # also those that run already
        again = run(site.systemctl("try-restart", WORKER_UNIT.format("*")), runner)
        result = [write(site.worker_settings, text), again, *result]
    return result


def _recorded(items: list[Item], had: Record) -> Record:
    """Return the new record: the entry of a file of settings that stays as it is does not change."""
    files = {}
    for item in items:
        unchanged = item.settings and not _may_write(item, had)
        files[str(item.path)] = had.files.get(str(item.path), "") if unchanged else digest(item.text)
    return Record(files, tuple(str(item.path) for item in items if item.settings))


def _may_write(item: Item, had: Record) -> bool:
    same = digest_of(item.path) == digest(item.text)
    return same or not item.path.exists() or had.is_ours(item.path)


def _placed(item: Item, had: Record) -> Iterator[Step]:
    if not item.path.exists():
        yield write(item.path, item.text, program=item.program)
    elif digest_of(item.path) == digest(item.text):
        yield say(f"leave {item.path}, which is up to date")
    elif item.settings and not _may_write(item, had):
        yield say(f"keep {item.path}, which has changed since the installation")
    else:
        yield write(item.path, item.text, "replace", program=item.program)


def _removed(path: Path, had: Record) -> Iterator[Step]:
    if not path.exists():
        return
    if str(path) in had.settings and not had.is_ours(path):
        yield say(f"keep {path}, which has changed since the installation")
    else:
        yield remove(path)


def registered(site: Site, runner: Command) -> Iterator[Step]:
    """Steps that make users and directories, and have systemd read the units."""
    if site.here and not site.user:
        users = [str(item.path) for item in site.items() if item.path.parent.name == "sysusers.d"]
        yield run(("systemd-sysusers", *users), runner)
        yield run(("systemd-tmpfiles", "--create", str(site.at("/etc/tmpfiles.d/tuner.conf"))), runner)
    if site.here:
        yield run(site.systemctl("daemon-reload"), runner)


def enabled(site: Site, runner: Command) -> Step:
    """Start the units, also after a boot; of an image only that."""
    enable = ("enable", "--now", *site.started) if site.here else ("enable", *site.started)
    return run(site.systemctl(*enable), runner)


def _stopped(site: Site, runner: Command) -> Iterator[Step]:
    there = [name for name in site.started if (site.units / name).exists()]
    there += sorted(path.name for path in site.units.glob(f"*.wants/{WORKER_UNIT.format('?*')}"))
    if there:
        now = ("--now",) if site.here else ()
        yield run(site.systemctl("disable", *now, *there), runner)
    if site.here and (site.units / "tuner-clockd.service").exists():  # its socket started it
        yield run(site.systemctl("stop", "tuner-clockd.service"), runner)


# --- The program that the service runs, which only root may be able to change.

_HOMES = ("/home", "/root", "/run/user")  # no service sees them: ProtectHome=yes
_MOST_FILES = 1_000_000  # of an environment with CuPy and the CUDA headers there are some 30 000
_ASK_S = 60.0
_ASK = """import json, sys, sysconfig, tuner, tuner.policies, tuner.power
own = [path for package in (tuner, tuner.policies, tuner.power) for path in package.__path__]
print(json.dumps([sysconfig.get_path("stdlib"), *own, *filter(None, sys.path)]))
"""

# from the checkout: what the package index has under the name is another project
_REMEDY = f"""install the program for root alone, from the directory of its source:
  python3 -m venv {SHIPPED_PREFIX}
  {SHIPPED_PREFIX}/bin/pip install '.[cuda12]'
  {SHIPPED_PREFIX}/bin/tuner install-service"""

Trusted = Callable[..., Path]
"""``tuner.kernel_files.trust.trusted``."""


def check_program(prefix: Path, trusted: Trusted, root: Path = Path("/")) -> None:
    """Refuse a program that the service would not find, or that others than root can change.

    Args:
        prefix: the program's environment, as the units name it.
        trusted: refuses a directory that others can change.
        root: below which the environment is; of an image only the environment itself is looked at.

    Raises:
        InputError: the message says what would be right.
        InstallError: the program does not run.
    """
    for home in _HOMES:
        if prefix.is_relative_to(home):
            raise InputError(f"{prefix}: services see nothing of {home}; {_REMEDY}")
    environment = root / str(prefix).lstrip("/")
    for name in ("tuner", "tuner-clockd"):
        if not (environment / "bin" / name).is_file():
            raise InputError(f"{environment / 'bin' / name}: is not there; {_REMEDY}")
    _only_root_changes(environment, trusted)
    if root == Path("/"):
        for path in _imported(prefix):
            _only_root_changes(path, trusted)


def _only_root_changes(path: Path, trusted: Trusted) -> None:
    try:
        trusted(path, {0}, most=_MOST_FILES)
    except InputError as error:
        raise InputError(f"root must run nothing that others can write: {error}; or {_REMEDY}") from error


def _imported(prefix: Path) -> list[Path]:
    """Directories that the program imports from; it is run for that, so look at ``prefix`` first."""
    command = [str(prefix / "bin" / "python"), "-I", "-c", _ASK]
    try:
        answer = subprocess.run(  # noqa: S603 - an interpreter that root alone can change, no shell
            command, check=True, capture_output=True, text=True, timeout=_ASK_S, stdin=subprocess.DEVNULL
        )
        named = [Path(path) for path in json.loads(answer.stdout)]
    except (OSError, ValueError, subprocess.SubprocessError) as error:
        errors = str(getattr(error, "stderr", "") or error).strip().splitlines()[-1]
        raise InstallError(f"{command[0]} does not run tuner: {errors}") from error
    return [path for path in dict.fromkeys(named) if path.is_dir() and not path.is_relative_to(prefix)]
