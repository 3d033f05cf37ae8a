"""Detects changes of kernel files, the driver or the GPUs.

Looking costs a few stat calls, so that it may be done often: nothing is read again, and no GPU is asked,
until something looks different. What is then read decides: a file that was only touched makes no answer
stale.
"""

import os
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tuner.config.shipped import kernels_root

DRIVER_FILES = (
    Path("/sys/module/nvidia/version"),
    Path("/proc/driver/nvidia/version"),
    Path("/etc/nv_tegra_release"),  # of a Jetson
)
"""What tells the version of the driver without asking it."""

GPU_FILES = Path("/proc/driver/nvidia/gpus")
"""A folder per GPU, with its UUID in ``information``."""

MOST_FILES = 20_000
"""That are looked at below the kernel directories: what may be in one that is trusted."""

_LONGEST = 64 * 1024  # bytes of a file of the driver


@dataclass(frozen=True)
class Changes:
    """The changes since the last look.

    Attributes:
        sources: kernel files or sources: the catalogue is to be read again.
        devices: the driver, or which GPUs there are: they are to be asked who they are.
    """

    sources: bool = False
    devices: bool = False


class ChangeWatcher:
    """Compares the conditions of answers with those of the last look.

    Args:
        directories: trusted folders of kernel files, beside those shipped.
        shipped: folder of the kernels that come with the package.
        driver_files: whose text tells the version of the driver.
        gpu_files: a folder per GPU.
    """

    def __init__(
        self,
        directories: Sequence[Path] = (),
        *,
        shipped: Path | None = None,
        driver_files: Sequence[Path] = DRIVER_FILES,
        gpu_files: Path = GPU_FILES,
    ) -> None:
        self._folders = (kernels_root() if shipped is None else shipped, *directories)
        self._driver_files = tuple(driver_files)
        self._gpu_files = gpu_files
        self._sources = sources_seen(self._folders)
        self._devices = self._devices_seen()

    def look(self) -> Changes:
        """Return the changes since the last look; reads small files and the times of others."""
        sources, devices = sources_seen(self._folders), self._devices_seen()
        changes = Changes(sources != self._sources, devices != self._devices)
        self._sources, self._devices = sources, devices
        return changes

    def _devices_seen(self) -> tuple[str, ...]:
        gpus = sorted(self._gpu_files.glob("*/information"))
        return (*map(_text, self._driver_files), *(_uuid(_text(path)) for path in gpus))


def sources_seen(folders: Iterable[Path]) -> frozenset[tuple[object, ...]]:
    """Every file below folders, by path, times, size and number; those of links are what they lead to."""
    return frozenset(_seen(folders))


def _seen(folders: Iterable[Path]) -> Iterator[tuple[object, ...]]:
    left = [Path(folder) for folder in folders]
    entered: set[tuple[int, int]] = set()
    files = 0
    while left and files < MOST_FILES:
        folder = left.pop()
        try:
            status = folder.stat()
            here = list(os.scandir(folder))
        except OSError as error:
            yield str(folder), error.errno
            continue
        if (status.st_dev, status.st_ino) in entered:  # a link leads back
            continue
        entered.add((status.st_dev, status.st_ino))
        for entry in here:
            if _is_folder(entry):
                left.append(Path(entry.path))
                continue
            files += 1
            try:
                status = entry.stat()
            except OSError as error:
                yield entry.path, error.errno
                continue
            yield entry.path, status.st_mtime_ns, status.st_ctime_ns, status.st_size, status.st_ino


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:  # it went just now
        return False


def _text(path: Path) -> str:
    """The text of a small file; empty where there is none."""
    try:
        with path.open("rb") as file:
            return file.read(_LONGEST).decode(errors="replace")
    except OSError:
        return ""


def _uuid(text: str) -> str:
    """The line of a GPU's information that names it; the others may change as it works."""
    return next((line for line in text.splitlines() if "UUID" in line), "")
