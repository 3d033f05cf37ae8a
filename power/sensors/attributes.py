"""Files of the kernel that are read repeatedly, and the powercap zones of a host."""

import errno
import os
from dataclasses import dataclass, replace
from pathlib import Path

from tuner.model.errors import PowerError

from .rails import distinct

_BYTES = 64  # more than a number takes
_BUSY = 20  # reads in a row that the driver may refuse because the chip was busy


class SysfsAttribute:
    """A file of the kernel with one whole number in it, kept open.

    Raises:
        PowerError: it cannot be opened.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._busy = 0
        self._file = -1
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
        except OSError as error:
            raise PowerError(_described(path, error)) from error

    def read(self) -> int | None:
        """The number now; None where the driver says that the chip is busy.

        Raises:
            PowerError: it cannot be read, is no number, or the chip has been busy 20 times in a row.
        """
        try:
            text = os.pread(self._file, _BYTES, 0)
        except OSError as error:
            self._busy += 1
            if error.errno == errno.EAGAIN and self._busy < _BUSY:
                return None
            raise PowerError(_described(self._path, error)) from error
        self._busy = 0
        try:
            return int(text)
        except ValueError:
            content = text.decode(errors="replace").strip()
            raise PowerError(f"{self._path}: holds {content!r} instead of a number") from None

    def close(self) -> None:
        """Close the file; twice is fine."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1


def read_text(path: Path) -> str:
    """The text of a file without the white space around it.

    Raises:
        PowerError: it cannot be read.
    """
    try:
        return path.read_text(errors="replace").strip()
    except OSError as error:
        raise PowerError(_described(path, error)) from error


def read_number(path: Path) -> int | None:
    """A whole number that a driver may or may not tell; None where it does not."""
    try:
        return int(path.read_text())
    except (OSError, ValueError):
        return None


def _described(path: Path, error: OSError) -> str:
    advice = (
        ": let this user read it (chmod a+r), or run as root" if isinstance(error, PermissionError) else ""
    )
    return f"{path}: {error.strerror}{advice}"


# --- The powercap zones of a host: packages, their DRAM, and the platform.

_CONTROLS = ("intel-rapl", "intel-rapl-mmio")  # AMD has the first too; the second repeats packages
_DOMAINS = ("package", "dram", "psys")
RANGE = "max_energy_range_uj"
"""The file that tells a zone's range."""


@dataclass(frozen=True)
class PowercapZone:
    """One zone.

    Attributes:
        name: e.g. ``package-0``, ``dram-0`` (the DRAM of that package), ``psys``.
        domain: ``package``, ``dram`` or ``psys``.
        folder: of its files.
        range_uj: at which it begins at 0 again; 0 where that is not told.
    """

    name: str
    domain: str
    folder: Path
    range_uj: int


def zones(sysfs: Path) -> list[PowercapZone]:
    """The zones of packages, DRAM and platform, each once; those of one name are numbered, and counted."""
    by_name: dict[str, PowercapZone] = {}
    for control in _CONTROLS:
        folders = sorted((sysfs / "class/powercap").glob(f"{control}:*"))
        readable = [zone for zone in map(_zone, folders) if zone is not None]
        for name, zone in zip(distinct([zone.name for zone in readable]), readable, strict=True):
            by_name.setdefault(name, replace(zone, name=name))
    return [by_name[name] for name in sorted(by_name)]


def _zone(folder: Path) -> PowercapZone | None:
    """The zone of a folder; None for a part of a package and for what cannot be read."""
    try:
        name = read_text(folder / "name")
        if name == "dram":
            package = read_text(folder.parent / folder.name.rpartition(":")[0] / "name")
            name = f"dram-{package.removeprefix('package-')}"
    except PowerError:
        return None
    domain = name.partition("-")[0]
    if domain not in _DOMAINS:
        return None
    return PowercapZone(name, domain, folder, read_number(folder / RANGE) or 0)
