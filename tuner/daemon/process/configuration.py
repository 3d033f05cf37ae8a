"""What files say: settings and kernels, read and checked; and where the daemon keeps what it knows."""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import platformdirs

from tuner.config.catalog import Catalog, kernels_root
from tuner.config.changes import ChangeWatcher
from tuner.config.trust import kernel_directories
from tuner.daemon.settings import file as settings_file
from tuner.daemon.settings.tables import Settings


@dataclass(frozen=True)
class Choices:
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


@dataclass(frozen=True)
class Ground:
    """Everything that files say.

    Attributes:
        settings: of daemon.toml.
        directories: trusted folders of kernel files beside those shipped.
        catalog: of all kernels.
        watch: sees what changes from before they were read.
    """

    settings: Settings
    directories: tuple[Path, ...]
    catalog: Catalog
    watch: ChangeWatcher

    @property
    def troubles(self) -> dict[str, list[str]]:
        """Kernel files that are left out, and why."""
        return {"kernels": [str(error) for error in self.catalog.broken]}


def settings_name(choices: Choices) -> str:
    """The file that settings are read from, for people."""
    if choices.config is not None:
        return str(choices.config.absolute())
    system = settings_file.SYSTEM_FILE
    return str(system) if system.exists() else f"all defaults, as {system} is not there"


def read(choices: Choices) -> Ground:
    """Read and check all files.

    Raises:
        InputError: one is wrong, or can be changed by others; the message names file and key.
    """
    return with_kernels(settings_file.load(choices.config))


def with_kernels(settings: Settings) -> Ground:
    """Read the kernels that settings name.

    Raises:
        InputError: others can change one.
    """
    directories = kernel_directories(settings.kernels.directories)
    watch = ChangeWatcher(directories)  # first: what changes while they are read is seen
    return Ground(settings, directories, Catalog.load(search_path=(kernels_root(), *directories)), watch)


def state_directory(
    choices: Choices, settings: Settings, environment: Mapping[str, str] = os.environ
) -> Path:
    """Where the database is: as named, else the service's of systemd, else the user's."""
    named = choices.state or settings.service.state
    if named is not None:
        return named.absolute()
    given = environment.get("STATE_DIRECTORY", "").split(":")[0]
    return Path(given) if given else platformdirs.user_state_path("tuner")
