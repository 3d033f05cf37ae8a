"""Peak memory of a process and all it starts, by samples of their proportional set sizes.

The proportional set size (PSS) counts a page that n processes share as 1/n of a page in each: the sum over a
tree counts every page once, as far as only the tree maps it. Where the kernel states none, resident set
sizes are added, which count shared pages several times; ``MemoryPeak.measure`` says which it was.
"""

import threading
from pathlib import Path

INTERVAL_S = 0.1
PROC = Path("/proc")


class MemoryPeak:
    """Samples a process tree on a thread of its own while it is a context.

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
