"""Starts the tuners as processes of their own, cold or warm, and reads what they did from what they left."""

import contextlib
import json
import os
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from kernel_tuner_tasks import ComparedSpace
from process_memory import MemoryPeak

BENCHMARKS = Path(__file__).resolve().parent
TIMEOUT_S = 300.0
TUNER = (sys.executable, "-c", "from tuner.cli.main import main; main()")
CACHES = {  # every folder in which either tuner, CuPy or the driver keeps what it compiled
    "XDG_CACHE_HOME": "cache",
    "XDG_STATE_HOME": "state",
    "CUPY_CACHE_DIR": "cupy",
    "CUDA_CACHE_PATH": "cuda",
}
TAIL_CHARACTERS = 2000


@dataclass(frozen=True)
class Ended:
    """A process that ended by itself.

    Attributes:
        began: seconds since the epoch at which it was started.
        wall_s: from its start to its end.
        peak_bytes: most memory of it and its children together.
        memory: ``pss`` or ``rss``: how that was measured.
        processes: how many they were then.
        trouble: the end of what it wrote, if it failed.
    """

    began: float
    wall_s: float
    peak_bytes: int
    memory: str
    processes: int
    trouble: str = ""


@dataclass(frozen=True)
class Caches:
    """A set of cache folders: cold when they are new, warm for the processes after the first.

    Attributes:
        folder: where they are.
    """

    folder: Path

    @classmethod
    @contextlib.contextmanager
    def new(cls) -> Iterator["Caches"]:
        """Empty ones, for as long as the context lasts."""
        with folder() as place:
            yield cls(place)

    def environment(self) -> dict[str, str]:
        """The environment of a process that keeps its caches here."""
        return {**os.environ, **{name: str(self.folder / part) for name, part in CACHES.items()}}


def ended(command: Sequence[str | Path], caches: Caches, log: Path) -> Ended:
    """Run a command to its end, its output into a file.

    A process that takes longer than ``TIMEOUT_S`` is stopped; so is it when we are.
    """
    with log.open("w") as output:
        began = time.time()
        process = subprocess.Popen(
            list(map(str, command)),
            env=caches.environment(),
            cwd=caches.folder,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
        )
        try:
            with MemoryPeak(process.pid) as memory:
                status = process.wait(TIMEOUT_S)
                wall_s = time.time() - began
        except subprocess.TimeoutExpired:
            status, wall_s = -1, TIMEOUT_S
        finally:
            _stop(process)
    trouble = f"status {status}: {log.read_text()[-TAIL_CHARACTERS:]}" if status else ""
    return Ended(began, wall_s, memory.peak_bytes, memory.measure, memory.processes, trouble)


def _stop(process: subprocess.Popen[Any]) -> None:
    """End a process that still runs: ask, then insist."""
    if process.poll() is None:
        process.terminate()
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(20)
    if process.poll() is None:
        process.kill()
        process.wait()


def kernel_tuner_run(
    space: ComparedSpace,
    caches: Caches,
    *,
    strategy: str,
    budget: int | None = None,
    seed: int = 0,
    verify: bool = False,
    backend: str = "cupy",
) -> dict[str, Any]:
    """Kernel Tuner over a space."""
    with folder() as place:
        task, out = space.task.write(place / "task.json"), place / "out.json"
        given = ["--strategy", strategy, "--seed", str(seed), "--backend", backend]
        given += ["--budget", str(budget)] if budget else []
        given += ["--verify"] if verify else []
        script = BENCHMARKS / "kernel_tuner_child.py"
        end = ended([sys.executable, script, task, out, *given], caches, place / "log")
        if end.trouble:
            return _facts(end)
        document = json.loads(out.read_text())
    trace = [
        (seconds(one["timestamp"]) - end.began, space.index_of_row(one["values"]), _in_s(one["time_ms"]))
        for one in document["results"]
    ]
    return {
        **_facts(end),
        "version": document["version"],
        "imported_s": document["imported_s"],
        "phases_s": {name: ms / 1e3 for name, ms in document["times_ms"].items()},
        "trace": trace,
        "evaluations": len(trace),
        "best": space.index_of_row(document["best"]),
    }


def tuner_run(
    space: ComparedSpace, caches: Caches, *, policy: str, seed: int = 0, kernel_file: Path | None = None
) -> dict[str, Any]:
    """``tuner run`` over a space; its answers are always checked."""
    with folder() as place:
        database, out = place / "tuner.db", place / "out.json"
        command: list[str | Path] = [*TUNER, "run", space.task.workload, "--objective", "time"]
        command += ["--policy", policy, "--seed", str(seed), "--min-occupancy", "0%"]
        command += ["--database", database, "--json", out]
        command += ["--kernel", kernel_file] if kernel_file else []
        end = ended(command, caches, place / "log")
        if end.trouble:
            return _facts(end)
        document = json.loads(out.read_text())
        trace = stored_trace(database, space, end.began)
    return {
        **_facts(end),
        "device": {key: document["device"][key] for key in ("name", "driver", "runtime")},
        "candidates": len(document["workloads"][0]["candidates"]),
        "phases_s": document.get("wall"),
        "trace": trace,
        "evaluations": document["space"]["measured"],
        "best": space.index(document["best"]["configurations"][space.task.workload]),
    }


def neutral_run(space: ComparedSpace, caches: Caches, finalists: Sequence[int]) -> dict[str, Any]:
    """Neutral times of a space.

    Raises:
        RuntimeError: the process failed; the message is the end of what it wrote.
    """
    with folder() as place:
        task, out = space.task.write(place / "task.json"), place / "out.json"
        script = BENCHMARKS / "kernel_tuner_neutral.py"
        command: list[str | Path] = [sys.executable, script, task, out, "--finalists", *map(str, finalists)]
        end = ended(command, caches, place / "log")
        if end.trouble:
            raise RuntimeError(end.trouble)
        document: dict[str, Any] = json.loads(out.read_text())
        return {**document, "wall_s": end.wall_s}


def stored_trace(database: Path, space: ComparedSpace, began: float) -> list[tuple[float, int, float | None]]:
    """The trials of the only run in a database, in their order: when each was stored, and its time."""
    with contextlib.closing(sqlite3.connect(database)) as connection:
        found = connection.execute("SELECT ended_at, trial, makespan_s, status FROM trials ORDER BY number")
        return [
            (
                seconds(at) - began,
                space.index(json.loads(trial)["configurations"][space.task.workload]),
                time_s if status == "ok" else None,
            )
            for at, trial, time_s, status in found
        ]


@contextlib.contextmanager
def folder() -> Iterator[Path]:
    """A folder for what processes leave."""
    with tempfile.TemporaryDirectory(prefix="wall-", ignore_cleanup_errors=True) as name:
        yield Path(name)


def seconds(text: str) -> float:
    """A time of day in UTC as seconds since the epoch."""
    moment = datetime.fromisoformat(text)
    return moment.replace(tzinfo=moment.tzinfo or timezone.utc).timestamp()


def _in_s(time_ms: float | None) -> float | None:
    return None if time_ms is None else time_ms / 1e3


def _facts(end: Ended) -> dict[str, Any]:
    return {
        "wall_s": end.wall_s,
        "peak_bytes": end.peak_bytes,
        "memory": end.memory,
        "processes": end.processes,
        "trouble": end.trouble,
        "best": None,
    }
