"""The state of the daemon: what its files say, and the devices it tunes on."""

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

import platformdirs

from tuner.config.catalog import Catalog, kernels_root
from tuner.config.changes import ChangeWatcher
from tuner.config.trust import kernel_directories
from tuner.daemon.settings import file as settings_file
from tuner.daemon.settings.tables import Settings
from tuner.model import DeviceIdentity


@dataclass(frozen=True)
class StartOptions:
    """What the command line says; it goes before daemon.toml.

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
    def settings_name(self) -> str:
        """The file that settings are read from, for people."""
        if self.config is not None:
            return str(self.config.absolute())
        system = settings_file.SYSTEM_FILE
        return str(system) if system.exists() else f"all defaults, as {system} is not there"

    def state_directory(self, settings: Settings, environment: Mapping[str, str] = os.environ) -> Path:
        """The directory of the database: as named, else the service's of systemd, else the user's."""
        named = self.state or settings.service.state
        if named is not None:
            return named.absolute()
        given = environment.get("STATE_DIRECTORY", "").split(":")[0]
        return Path(given) if given else platformdirs.user_state_path("tuner")


@dataclass(frozen=True)
class LoadedConfig:
    """Settings and kernels, read and checked.

    Attributes:
        settings: of daemon.toml.
        directories: trusted folders of kernel files beside those shipped.
        catalog: of all kernels.
        watch: sees what changes after they were read.
    """

    settings: Settings
    directories: tuple[Path, ...]
    catalog: Catalog
    watch: ChangeWatcher

    @property
    def troubles(self) -> dict[str, list[str]]:
        """Kernel files that are left out, and why."""
        return {"kernels": [str(error) for error in self.catalog.broken]}


def load_config(options: StartOptions) -> LoadedConfig:
    """Read and check all files.

    Raises:
        InputError: one is wrong, or can be changed by others; the message names file and key.
    """
    return load_kernels(settings_file.load(options.config))


def load_kernels(settings: Settings) -> LoadedConfig:
    """Read the kernels that settings name.

    Raises:
        InputError: others can change one.
    """
    directories = kernel_directories(settings.kernels.directories)
    watch = ChangeWatcher(directories)  # first: a change while they are read is seen
    catalog = Catalog.load(search_path=(kernels_root(), *directories))
    return LoadedConfig(settings, directories, catalog, watch)


@dataclass
class State:
    """The present state. Parts of the daemon read it each time and keep no copies.

    Attributes:
        settings: of daemon.toml.
        catalog: of the kernels that may be named.
        identities: device -> identity of those that are tuned on, the default device first.
        directories: trusted folders of kernel files beside those shipped.
        troubles: what is wrong, for people, by what it concerns.
        notices: what is not wrong, and yet to be known.
        places: of the socket, the state, the settings and the TCP port, for people.
    """

    settings: Settings
    catalog: Catalog
    identities: dict[str, DeviceIdentity]
    directories: tuple[Path, ...] = ()
    troubles: dict[str, list[str]] = field(default_factory=dict)
    notices: tuple[str, ...] = ()
    places: dict[str, str] = field(default_factory=dict)

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
        self.directories = config.directories
        self.troubles.update(config.troubles)
