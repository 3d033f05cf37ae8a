"""What scripts share: command line, origin of a result, how it is stored, and memory of processes."""

import argparse
import json
import platform
import subprocess
import sys
import threading
from collections.abc import Mapping
from datetime import datetime, timezone
from importlib import metadata
from pathlib import Path
from typing import Any

from tuner.model.version import VERSION

PACKAGES = ("numpy", "scipy", "cupy-cuda12x", "cupy-cuda13x", "kernel_tuner", "nvidia-ml-py")


def command_line(about: str | None, *, must_save: bool = False) -> argparse.ArgumentParser:
    """A parser that says what a script is about, with ``--out`` for the JSON of its result."""
    parser = argparse.ArgumentParser(description=about, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=must_save, help="JSON to write")
    return parser


def provenance() -> dict[str, Any]:
    """GPU, driver and clocks as `nvidia-smi` reads them, versions, date and command line."""
    return {
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": " ".join(["python", f"benchmarks/{_script()}", *map(_relative, sys.argv[1:])]),
        "gpus": _gpus(),
        "python": platform.python_version(),
        "packages": {"tuner": VERSION, **{n: version for n in PACKAGES if (version := _version(n))}},
        "cpus": _cpus(),
    }


def save(path: Path | None, document: Mapping[str, Any]) -> None:
    """Store a result as JSON where a file was asked for."""
    if path is not None:
        path.write_text(json.dumps(document, indent=1) + "\n")


def _script() -> Path:
    """The script that runs, from the folder of benchmarks on."""
    script, folder = Path(sys.argv[0]).resolve(), Path(__file__).resolve().parent
    return script.relative_to(folder) if script.is_relative_to(folder) else Path(script.name)


def _relative(word: str) -> str:
    """An argument without the directories of the machine it was given on."""
    return f".../{Path(word).name}" if Path(word).is_absolute() else word


def _version(name: str) -> str | None:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _gpus() -> list[dict[str, str]]:
    fields = "name,driver_version,clocks.sm,clocks.max.sm,power.limit,temperature.gpu"
    try:
        answer = subprocess.run(
            ["nvidia-smi", f"--query-gpu={fields}", "--format=csv,noheader"],
            check=True,
            capture_output=True,
            text=True,
        )
    except (OSError, subprocess.CalledProcessError):
        return []
    names = fields.split(",")
    return [
        dict(zip(names, (part.strip() for part in line.split(",")), strict=True))
        for line in answer.stdout.splitlines()
    ]


def _cpus() -> str:
    try:
        with open("/proc/cpuinfo") as file:  # noqa: PTH123 - a pseudo file
            names = [line.partition(":")[2].strip() for line in file if line.startswith("model name")]
    except OSError:
        return platform.processor()
    return f"{len(names)} x {names[0]}" if names else platform.processor()


# --- memory of a process and of all that it starts ---------------------------------------------------

INTERVAL_S = 0.1
PROC = Path("/proc")


class MemoryPeak:
    """Peak memory of a process and all it starts, by samples on a thread of its own while it is a context.

    The proportional set size (PSS) counts a page that n processes share as 1/n of a page in each: the sum
    over a tree counts every page once, as far as only the tree maps it. Where the kernel states none,
    resident set sizes are added, which count shared pages several times; ``measure`` says which it was.

    Args:
        pid: the root of the tree.
        interval_s: seconds between samples.
        proc: where the kernel tells of processes.
    """

    def __init__(self, pid: int, interval_s: float = INTERVAL_S, proc: Path = PROC) -> None:
        self.peak_bytes = 0
        self.processes = 0
        self.measure = "pss"
        self._pid, self._interval_s, self._proc = pid, interval_s, proc
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._sample, daemon=True)

    def __enter__(self) -> "MemoryPeak":  # noqa: PYI034 - typing.Self needs Python 3.11
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()

    def look(self) -> None:
        """Take one sample."""
        pids = tree(self._pid, self._proc)
        sizes = [(pss_bytes(pid, self._proc), pid) for pid in pids]
        if any(size is None for size, _ in sizes):
            alive = [pid for _, pid in sizes if rss_bytes(pid, self._proc)]
            if any(size is None for size, pid in sizes if pid in alive):
                self.measure = "rss"
        total = sum(rss_bytes(pid, self._proc) if self.measure == "rss" else size or 0 for size, pid in sizes)
        if total > self.peak_bytes:
            self.peak_bytes, self.processes = total, len(pids)

    def _sample(self) -> None:
        while not self._over.wait(self._interval_s):
            self.look()


def tree(root: int, proc: Path = PROC) -> list[int]:
    """The process and all its descendants that live now."""
    children: dict[int, list[int]] = {}
    for folder in proc.iterdir():
        if folder.name.isdigit() and (parent := _parent(folder)) is not None:
            children.setdefault(parent, []).append(int(folder.name))
    found = [root] if (proc / str(root)).is_dir() else []
    for pid in found:  # grows while it is walked
        found += children.get(pid, [])
    return found


def _parent(folder: Path) -> int | None:
    try:
        text = (folder / "stat").read_text()
    except OSError:  # it ended meanwhile
        return None
    return int(text.rpartition(")")[2].split()[1])  # the name, in brackets, may hold anything


def pss_bytes(pid: int, proc: Path = PROC) -> int | None:
    """Proportional set size; None where the kernel does not state it (or the process has ended)."""
    try:
        text = (proc / str(pid) / "smaps_rollup").read_text()
    except OSError:
        return None
    sizes = [line.split()[1] for line in text.splitlines() if line.startswith("Pss:")]
    return 1024 * int(sizes[0]) if sizes else None


def rss_bytes(pid: int, proc: Path = PROC) -> int:
    """Resident set size; 0 for a process that has ended."""
    try:
        text = (proc / str(pid) / "status").read_text()
    except OSError:
        return 0
    sizes = [line.split()[1] for line in text.splitlines() if line.startswith("VmRSS:")]
    return 1024 * int(sizes[0]) if sizes else 0
