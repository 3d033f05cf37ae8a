"""Fake ``/sys/class/powercap`` trees, and zones whose counters follow a clock."""

from collections.abc import Callable
from pathlib import Path

from tuner.model.errors import PowerError

RANGE_UJ = 262_143_328_850
"""Of an Intel server's package: 262 kJ."""


def build(
    root: Path, packages: int = 1, *, dram: bool = True, psys: bool = False, mmio: bool = False
) -> Path:
    """Make the tree of a host; returns its ``/sys``."""
    for number in range(packages):
        zone(root, f"intel-rapl:{number}", f"package-{number}")
        zone(root, f"intel-rapl:{number}:0", "core")
        if dram:
            zone(root, f"intel-rapl:{number}:1", "dram", range_uj=65_712_999_613)
        if mmio:
            zone(root, f"intel-rapl-mmio:{number}", f"package-{number}")
    if psys:
        zone(root, f"intel-rapl:{packages}", "psys")
    return root


def zone(root: Path, folder: str, name: str, energy_uj: int = 1000, range_uj: int = RANGE_UJ) -> Path:
    """Make one zone; its folder."""
    path = root / "class/powercap" / folder
    path.mkdir(parents=True)
    for file, value in (("name", name), ("max_energy_range_uj", range_uj), ("energy_uj", energy_uj)):
        (path / file).write_text(f"{value}\n")
    return path


def played(watts: dict[str, float], now: Callable[[], float], begin_uj: int = 0) -> type:
    """A class that stands for ``SysfsAttribute``: counters that grow by the watts of their zone's name.

    A zone is gone where its folder is.
    """

    class PlayedAttribute:
        def __init__(self, path: Path) -> None:
            self._folder = path.parent
            if not self._folder.exists():
                raise PowerError(f"{path}: No such file or directory")
            self._name = (path.parent / "name").read_text().strip()
            self._range_uj = int((path.parent / "max_energy_range_uj").read_text())

        def read(self) -> int:
            if not self._folder.exists():
                raise PowerError(f"{self._folder}/energy_uj: No such device")
            return (begin_uj + int(now() * watts[self._name] * 1e6)) % self._range_uj

        def close(self) -> None:
            """Nothing is open."""

    return PlayedAttribute
