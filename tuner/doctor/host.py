"""Checks of the host: other readers of the GPU, directories, disk space, the database, Jetson power modes."""

import os
import re
import shutil
from collections.abc import Iterator
from pathlib import Path

from tuner.database.faults import check_database, check_mirror, mirror_of
from tuner.devices.sensors import is_jetson
from tuner.doctor.finding import Finding
from tuner.model.errors import StoreError

_MODEL = re.compile(r"<\s*POWER_MODEL\s+ID=(\d+)\s+NAME=(\S+)\s*>")
_STATUS = re.compile(r"pmode:(\d+)")
_TEGRASTATS = ("usr/bin/tegrastats", "home/nvidia/tegrastats", "home/ubuntu/tegrastats")
MONITORS = (
    *("dcgm-exporter", "nv-hostengine", "dcgmi", "nvidia-smi", "nvitop", "nvtop", "gpustat", "zeusd"),
    *("jtop", "tegrastats", "nvidia_gpu_exporter", "nvidia_gpu_prometheus_exporter", "all-smi", "btop"),
)
"""Programs that ask the GPU for its state again and again: work for it, and power."""

_NAME_BYTES = 15  # the kernel keeps so much of a program's name
_LITTLE_BYTES = 2**30
_NOTHING_BYTES = 2**26  # a run's database and compiled code need tens of MB


def jetson(root: Path) -> Iterator[Finding]:
    """Which power mode holds, and is tegrastats there? Silent on other machines.

    Args:
        root: below which ``/proc``, ``/etc`` and ``/var`` are.
    """
    if not is_jetson(root):
        return
    mode = power_mode(root)
    if mode is None:
        yield Finding("power mode", "note", "not to be read from nvpmodel's files", "see nvpmodel -q")
    elif mode.upper().startswith("MAXN"):
        yield Finding("power mode", "ok", f"nvpmodel: {mode} (heat or current may still throttle the board)")
    else:
        yield Finding(
            "power mode",
            "note",
            f"nvpmodel: {mode} caps clocks and power; results hold for this mode",
            "nvpmodel -m selects another (MAXN has no caps)",
        )
    if any((root / path).exists() for path in _TEGRASTATS):
        yield Finding("tegrastats", "ok", "is there")
    else:
        yield Finding("tegrastats", "note", "not found; the power monitors may be read without it")


def power_mode(root: Path) -> str | None:
    """Name of nvpmodel's present mode; its number where the configuration names none; None if unknown."""
    try:
        status = _STATUS.search((root / "var/lib/nvpmodel/status").read_text(errors="replace"))
    except OSError:
        return None
    if status is None:
        return None
    try:
        models = _MODEL.findall((root / "etc/nvpmodel.conf").read_text(errors="replace"))
    except OSError:
        models = []
    number = int(status[1])
    return next((name for found, name in models if int(found) == number), f"mode {number}")


def monitors(proc: Path) -> Iterator[Finding]:
    """Do other programs poll the GPU?

    Args:
        proc: the ``/proc`` to look through.
    """
    found: dict[str, list[int]] = {}
    for pid, names in processes(proc):
        for monitor in MONITORS:
            if monitor in names or (monitor[:_NAME_BYTES] in names and len(monitor) > _NAME_BYTES):
                found.setdefault(monitor, []).append(pid)
                break
    for monitor, pids in sorted(found.items()):
        yield Finding(
            "monitors",
            "warning",
            f"{monitor} (process {', '.join(map(str, sorted(pids)))}) polls the GPU, which costs it power",
            f"stop {monitor} while measuring",
        )
    if not found:
        yield Finding("monitors", "ok", "no other program that is known to poll GPUs")


def processes(proc: Path) -> Iterator[tuple[int, set[str]]]:
    """Every process with the names it goes by: the kernel's, its program's, and that of its script."""
    for folder in proc.glob("[0-9]*"):
        try:
            name = (folder / "comm").read_text(errors="replace").strip()
            words = (folder / "cmdline").read_bytes().split(b"\0")
        except OSError:
            continue  # it has ended
        # a script follows its interpreter, a module of Python follows -m
        words = words[:3:2] if words[1:2] == [b"-m"] else words[:2]
        yield int(folder.name), {name, *(Path(word.decode(errors="replace")).name for word in words)}


def directory(what: str, path: Path) -> Iterator[Finding]:
    """Can a directory be written, or made where it does not exist? And is there room?"""
    nearest = next(folder for folder in (path, *path.parents) if folder.exists())
    if not nearest.is_dir() or not os.access(nearest, os.W_OK | os.X_OK):
        yield Finding(what, "error", f"{path} cannot be written", f"let this user write {nearest}")
        return
    free_bytes = shutil.disk_usage(nearest).free
    room = f"{path}, {free_bytes / 2**30:.1f} GiB free"
    if free_bytes < _NOTHING_BYTES:
        yield Finding(what, "error", room, "free some space")
    elif free_bytes < _LITTLE_BYTES:
        yield Finding(what, "warning", room, "free some space before a long run")
    else:
        yield Finding(what, "ok", room)


def database(path: Path) -> Iterator[Finding]:
    """Is the database whole? One that does not exist yet is not made."""
    if not path.exists():
        yield Finding("database", "ok", f"{path} does not exist yet; the first run makes it")
        return
    try:
        runs = check_database(path)
    except StoreError as error:
        if _is_whole(mirror_of(path)):
            remedy = "`tuner db repair` rebuilds it from its mirror"
            yield Finding("database", "warning", f"{error}; its mirror is whole", remedy)
        else:
            yield Finding("database", "error", str(error), "move it aside, or name another with --database")
        return
    yield Finding("database", "ok", f"{path} is whole and holds {runs} runs")
    trouble = check_mirror(path)
    if trouble:
        yield Finding("database", "warning", trouble, "`tuner db repair` rebuilds it from the database")


def _is_whole(path: Path) -> bool:
    if not path.exists():
        return False
    try:
        check_database(path)
    except StoreError:
        return False
    return True
