"""Checks of the host: other programs that read the GPU, directories, disk space, the database."""

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

from tuner.database.check import check_database, check_mirror, mirror_of
from tuner.doctor.finding import Finding
from tuner.errors import StoreError

MONITORS = (
    *("dcgm-exporter", "nv-hostengine", "dcgmi", "nvidia-smi", "nvitop", "nvtop", "gpustat", "zeusd"),
    *("jtop", "tegrastats", "nvidia_gpu_exporter", "nvidia_gpu_prometheus_exporter", "all-smi", "btop"),
)
"""Programs that ask the GPU for its state again and again: work for it, and power."""

_NAME_BYTES = 15  # the kernel keeps so much of a program's name
_LITTLE_BYTES = 2**30
_NOTHING_BYTES = 2**26  # a run's database and compiled code need tens of MB


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
