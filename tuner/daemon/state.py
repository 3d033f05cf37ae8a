"""The state of the daemon: what its files say, and the devices it tunes on."""

import os
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

from tuner.client.answer_values import Status
from tuner.daemon import settings_file
from tuner.daemon.settings import Settings
from tuner.daemon.settings_file import kept_settings, service_table
from tuner.daemon.tokens import Tokens
from tuner.kernel_files.catalog import Catalog, ChangeWatcher, ReadFolder, user_directory, with_added
from tuner.kernel_files.source_folder import kernels_root
from tuner.kernel_files.trust import kernel_directories, usable_directories
from tuner.model.errors import InputError
from tuner.model.jobs import DeviceIdentity
from tuner.system.user_folders import user_folder


@dataclass(frozen=True)
class StartOptions:
    """Options of the command line, which override daemon.toml.

    Attributes:
        config: the file; None for the system's where there is one.
        devices: that are tuned on.
        state: directory of the database.
        socket: where to listen.
    """

    config: Path | None = None
    devices: tuple[str, ...] = ()
    state: Path | None = None
    socket: Path | None = None

    @property
    def file(self) -> Path | None:
        """The file that settings are read from; None where there is none, and all have their defaults."""
        if self.config is not None:
            return self.config
        return settings_file.SYSTEM_FILE if settings_file.SYSTEM_FILE.exists() else None

    @property
    def settings_name(self) -> str:
        """The file that settings are read from, for people."""
        if self.config is not None:
            return str(self.config.absolute())
        system = settings_file.SYSTEM_FILE
        return str(system) if system.exists() else f"all defaults, as {system} is not there"

    def state_directory(self, settings: Settings) -> Path:
        """The directory of the database: as named, else the service's of systemd, else the user's."""
        named = self.state or settings.service.state
        if named is not None:
            return named.absolute()
        directories = os.environ.get("STATE_DIRECTORY", "").split(":")[0]
        return Path(directories) if directories else user_folder("state")


@dataclass(frozen=True)
class LoadedConfig:
    """Settings and kernels, read and checked.

    Attributes:
        settings: of daemon.toml.
        directories: trusted folders of kernel files beside those shipped.
        catalog: of all kernels.
        watch: sees what changes after they were read.
        text: of the file; empty where there is none, and where it is wrong.
        wrong: what is wrong in the file, where settings that were kept are in force in its place.
        left_out: named folders of kernel files that cannot be trusted, and why.
    """

    settings: Settings
    directories: tuple[Path, ...]
    catalog: Catalog
    watch: ChangeWatcher
    text: str = ""
    wrong: str = ""
    left_out: Mapping[Path, str] = field(default_factory=dict)

    @property
    def troubles(self) -> dict[str, list[str]]:
        """Errors in the file and in kernels, and the reasons that kernels are left out."""
        return {
            "daemon.toml": [self.wrong] if self.wrong else [],
            "kernels": [*self.left_out.values(), *(str(error) for error in self.catalog.broken)],
        }


def load_config(options: StartOptions) -> LoadedConfig:
    """Read and check all files.

    Raises:
        InputError: one is wrong, or can be changed by others; the message names file and key.
    """
    settings, text = _read(options.file)
    directories = kernel_directories(with_added(named_directories(settings)))
    return replace(_with_kernels(settings, directories), text=text)


def usable_config(options: StartOptions) -> LoadedConfig:
    """Return settings to start a daemon with: the file's; if it is wrong, those that were in force before.

    Folders of kernels that cannot be trusted are left out.

    Raises:
        InputError: the file is wrong, and no settings were kept; the message names file and key.
    """
    text = wrong = ""
    try:
        settings, text = _read(options.file)
    except InputError as error:
        file = options.file
        directory = options.state_directory(Settings(service=service_table(file)))
        before = None if file is None else kept_settings(directory, file)
        if before is None:
            raise
        settings, wrong = before.settings, f"{error} ({in_force(f'the settings of {before.at}')})"
    return replace(usable_kernels(settings), text=text, wrong=wrong)


def new_config(options: StartOptions) -> LoadedConfig:
    """Read the settings again for a running daemon; untrusted folders of kernels are left out.

    Raises:
        InputError: the file is wrong; the message names file and key.
    """
    settings, text = _read(options.file)
    return replace(usable_kernels(settings), text=text)


def usable_kernels(settings: Settings) -> LoadedConfig:
    """Read the kernels that settings name, without folders that cannot be trusted."""
    directories, left_out = usable_directories(named_directories(settings))
    return replace(_with_kernels(settings, directories), left_out=left_out)


def named_directories(settings: Settings) -> tuple[Path, ...]:
    """The folders of kernel files that settings name; where they name none, that of this user beside them."""
    named = settings.kernels.directories
    with suppress(InputError):  # a user without a home
        named = named if "directories" in settings.kernels.model_fields_set else (*named, user_directory())
    return named


def in_force(what: str) -> str:
    """Which settings are in force while the file is wrong, and what to do."""
    return f"in force: {what}; when the file is mended, it is read by itself"


def _read(file: Path | None) -> tuple[Settings, str]:
    text = "" if file is None else settings_file.read_text(file)
    return (Settings() if file is None else settings_file.parsed(text, file)), text


def _with_kernels(settings: Settings, directories: tuple[Path, ...]) -> LoadedConfig:
    # first: a change while they are read is seen; in folders, too, that are made later
    watch = ChangeWatcher((*named_directories(settings), *directories))
    shipped = kernels_root()
    read = ReadFolder.read(shipped)  # all at once, as changes of its files are seen from here on
    catalog = Catalog.load(search_path=(shipped, *directories), cached=[read])
    return LoadedConfig(settings, directories, catalog, watch)


@dataclass
class State:
    """The present state. Parts of the daemon read it each time and keep no copies.

    Attributes:
        settings: of daemon.toml.
        catalog: of the kernels that may be named.
        identities: device -> identity of those that are tuned on, the default device first.
        directories: trusted folders of kernel files beside those shipped.
        left_out: named folders of kernel files that cannot be trusted, and why: their jobs wait.
        troubles: what is wrong, for people, by what it concerns.
        notices: what is not wrong, and yet to be known.
        places: of the socket, the state, the settings and the TCP port, for people.
        halted: why no job may run on any device; empty where that is not so.
        tokens: of those who come over the loopback.
    """

    settings: Settings
    catalog: Catalog
    identities: dict[str, DeviceIdentity]
    directories: tuple[Path, ...] = ()
    left_out: Mapping[Path, str] = field(default_factory=dict)
    troubles: dict[str, list[str]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    places: Status = field(default_factory=Status)
    halted: str = ""
    tokens: Tokens = field(default_factory=Tokens)

    @property
    def devices(self) -> list[str]:
        """Names of the devices."""
        return list(self.identities)

    def uuid(self, device: str) -> str:
        """The UUID of a device."""
        return self.identities[device].uuid

    def adopt(self, config: LoadedConfig) -> None:
        """Replace settings and kernels by those that were read now."""
        self.settings, self.catalog = config.settings, config.catalog
        self.directories, self.left_out = config.directories, config.left_out
        self.troubles.update(config.troubles)

    def unreadable(self, workloads: Iterable[str]) -> str:
        """Return the reason that kernels of workloads are unreadable for now; empty if there is none.

        A kernel of a folder that is left out may be unknown, or stand before a shipped one of its name.
        """
        names = {workload.partition(":")[0] for workload in workloads}
        for folder, reason in self.left_out.items():
            hidden = {path.stem if path.is_file() else path.name for path in (folder, *_entries(folder))}
            if names & hidden or names - self.catalog.kernels.keys():
                return f"its kernels cannot be read: {reason}"
        return ""


def _entries(folder: Path) -> list[Path]:
    try:
        return list(folder.iterdir())
    except OSError:
        return []
