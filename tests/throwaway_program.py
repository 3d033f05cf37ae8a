"""The program and what it imports, put into the root of a throw-away machine as an administrator would."""

import compileall
import os
import shutil
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

import throwaway_systemd
from packaging.requirements import Requirement

ROOT = Path(__file__).parent.parent
PREFIX = "/opt/tuner"
LIBRARY_PATH = (
    f"{Path(throwaway_systemd.python()).parents[1]}/lib"  # of an interpreter that is not the system's
)
_FOLDERS = {"tuner": ".", "power": "tuner", "policies": "tuner", "kernels": "tuner", "systemd": "tuner"}
_NVML = "nvidia-ml-py"  # what reads NVML, also the fake one
_LARGE = "nvidia"  # packages of NVIDIA: without a compiler the modelled GPU takes what kernels declare
_SCRIPT = """#!{prefix}/bin/python
import sys
from {entry.module} import {entry.attr}
if __name__ == "__main__":
    sys.exit({entry.attr}())
"""


def put(root: Path) -> None:
    """Make ``/opt/tuner`` in a root: an environment of its own that belongs to root alone."""
    prefix = root / PREFIX.lstrip("/")
    site = prefix / f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
    site.mkdir(parents=True)
    (prefix / "bin").mkdir()
    python = Path(throwaway_systemd.python())
    (prefix / "pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")
    (prefix / "bin/python").symlink_to(python)
    for name, parent in _FOLDERS.items():
        shutil.copytree(ROOT / name, site / parent / name, dirs_exist_ok=True)
    add(root, "gpu-tuner")
    compileall.compile_dir(str(site), quiet=2, stripdir=str(root))  # as pip does: services cannot
    for path in (prefix, *prefix.rglob("*")):
        os.chown(path, 0, 0, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o022)


def add(root: Path, *names: str) -> None:
    """Add distributions with all that they need to the environment, and their commands."""
    prefix = root / PREFIX.lstrip("/")
    (site,) = prefix.glob("lib/python*/site-packages")
    found = {_NVML}
    for name in names:
        _needed(name, found)
        for entry in distribution(name).entry_points.select(group="console_scripts"):
            script = prefix / "bin" / entry.name
            script.write_text(_SCRIPT.format(prefix=PREFIX, entry=entry))
            script.chmod(0o755)
    for name in sorted(found):
        _copy(distribution(name), site)


def _needed(name: str, found: set[str]) -> set[str]:
    """A distribution and all that it needs here, by name."""
    if name in found or name.startswith(_LARGE):
        return found
    found.add(name)
    for text in distribution(name).requires or ():
        requirement = Requirement(text)
        if requirement.marker is None or requirement.marker.evaluate({"extra": ""}):
            _needed(requirement.name, found)
    return found


def _copy(found: Distribution, site: Path) -> None:
    """Copy a distribution's top-level folders and files; of this project's own only what describes it."""
    tops = {file.parts[0] for file in found.files or () if ".." not in file.parts}
    for top in tops:
        source = Path(str(found.locate_file(top)))
        if found.metadata["Name"] == "gpu-tuner" and not top.endswith(".dist-info"):
            continue
        if source.is_dir():
            shutil.copytree(source, site / top, ignore=shutil.ignore_patterns("tests"), dirs_exist_ok=True)
        elif source.is_file():
            shutil.copy(source, site / top)
