"""The program and what it imports, put into the root of a throw-away machine as an administrator would."""

import compileall
import os
import shutil
import sys
from collections.abc import Mapping
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
_SITE = f"lib/python{sys.version_info.major}.{sys.version_info.minor}/site-packages"
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
    site = _begun(root, PREFIX)
    for name in sorted(_needed("gpu-tuner", {_NVML})):
        _copy(distribution(name), site)
    _finish(root, PREFIX)


def put_compiler(root: Path) -> None:
    """Add NVRTC to ``/opt/tuner``."""
    _copy(distribution("nvidia-cuda-nvrtc-cu12"), root / PREFIX.lstrip("/") / _SITE)
    _finish(root, PREFIX)


def put_another(root: Path, prefix: str, edits: Mapping[str, tuple[str, str]]) -> None:
    """Make a further environment, which takes what it imports from that of ``put``.

    Args:
        root: with ``/opt/tuner``.
        prefix: of the environment.
        edits: file of the package -> what is replaced in it, and by what: another version.
    """
    site = _begun(root, prefix)
    (site / "first.pth").write_text(f"{PREFIX}/{_SITE}\n")
    for name, (old, new) in edits.items():
        file = site / "tuner" / name
        text = file.read_text()
        assert old in text, name
        file.write_text(text.replace(old, new, 1))
    _finish(root, prefix)


def _begun(root: Path, prefix: str) -> Path:
    """An environment with the programs and this project's package; its folder of packages."""
    folder = root / prefix.lstrip("/")
    site = folder / _SITE
    site.mkdir(parents=True)
    (folder / "bin").mkdir()
    python = Path(throwaway_systemd.python())
    (folder / "pyvenv.cfg").write_text(f"home = {python.parent}\ninclude-system-site-packages = false\n")
    (folder / "bin/python").symlink_to(python)
    _add_commands(root, prefix, "gpu-tuner")
    for name, parent in _FOLDERS.items():
        shutil.copytree(ROOT / name, site / parent / name, dirs_exist_ok=True)
    return site


def _finish(root: Path, prefix: str) -> None:
    """Compile what services cannot, and leave an environment to root alone."""
    folder = root / prefix.lstrip("/")
    compileall.compile_dir(str(folder / _SITE), quiet=2, stripdir=str(root))  # as pip does: services cannot
    for path in (folder, *folder.rglob("*")):
        os.chown(path, 0, 0, follow_symlinks=False)
        if not path.is_symlink():
            path.chmod(path.stat().st_mode & ~0o022)


def add(root: Path, *names: str) -> None:
    """Add distributions with all that they need to ``/opt/tuner``, and their commands."""
    found = {_NVML}
    for name in names:
        _needed(name, found)
        _add_commands(root, PREFIX, name)
    for name in sorted(found):
        _copy(distribution(name), root / PREFIX.lstrip("/") / _SITE)


def _add_commands(root: Path, prefix: str, name: str) -> None:
    """Write the commands of a distribution."""
    for entry in distribution(name).entry_points.select(group="console_scripts"):
        script = root / prefix.lstrip("/") / "bin" / entry.name
        script.write_text(_SCRIPT.format(prefix=prefix, entry=entry))
        script.chmod(0o755)


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
