"""The powercap zones of a host: packages, their DRAM, and the platform."""

from dataclasses import dataclass, replace
from pathlib import Path

from tuner.model.errors import PowerError

from .attributes import read_number, read_text
from .rails import distinct

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
    found: dict[str, PowercapZone] = {}
    for control in _CONTROLS:
        folders = sorted((sysfs / "class/powercap").glob(f"{control}:*"))
        known = [zone for zone in map(_zone, folders) if zone is not None]
        for name, zone in zip(distinct([zone.name for zone in known]), known, strict=True):
            found.setdefault(name, replace(zone, name=name))
    return [found[name] for name in sorted(found)]


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
