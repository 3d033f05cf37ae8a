"""How soon a job leaves the GPU: when it is told to stop, and when somebody else's work comes.

A job's process measures on a GPU. At a random moment between its trials it is told to stop (SIGTERM, as for a
pause, a cancel or a shutdown), or another program opens the GPU, for which the daemon looks every quarter of
a second. What counts is the time until the job's worker, which holds the GPU, has ended, and that until all
of the job has; and that every trial it had told of is in the database.

    python benchmarks/daemon_stopping.py --device cuda:0 --out benchmarks/results/daemon-stopping-h200.json
"""

import argparse
import asyncio
import json
import os
import random
import select
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from provenance import provenance

from tuner.daemon.machine import ContentionMonitor
from tuner.database.connection import Database
from tuner.database.jobs import Jobs
from tuner.database.runs import Store
from tuner.devices.choice import identify
from tuner.model.jobs import JobSpec, Origin
from tuner.search.job_launcher import AttemptProcess, Launcher, start
from tuner.search.job_messages import AttemptResult, AttemptSpec

PROMISED_S = 1.0
_LOOK_EVERY_S = 0.25  # the daemon's default
_GRACE_S = 5.0  # the daemon's
_PATIENCE_S = 120.0
_WARM_TRIALS = 3
_LATEST_S = 3.0  # after the third trial: warm-up, checks, bursts and contenders all come to be interrupted
# Opens the GPU, says when, and keeps it busy.
_GUEST = """
import time
import cupy
a = cupy.random.rand(4096, 4096, dtype="float32")
cupy.cuda.get_current_stream().synchronize()
print(time.monotonic(), flush=True)
while True:
    cupy.matmul(a, a)
    cupy.cuda.get_current_stream().synchronize()
"""


class Case:
    """One job, of which somebody wants the GPU back."""

    def __init__(self, folder: Path, device: str) -> None:
        self._spec = self._queue(folder / "tuner.db", device)
        self._trials = 0
        self._third = asyncio.Event()
        self._begun = asyncio.Event()
        self._launcher = Launcher()

    @staticmethod
    def _queue(path: Path, device: str) -> AttemptSpec:
        options = {"window_s": 0.25}
        spec = JobSpec(("scan-lf:N=1024", "fft:N=1024"), "energy", "random", device=device, options=options)
        with Database(path) as database:
            job = Jobs(database).add(spec, origin=Origin.CLIENT)
        return AttemptSpec(job.id, spec, path, idle_test=False)

    async def begin(self) -> tuple[AttemptProcess, list[int]]:
        """Start it; returns its process and its workers once it measures."""
        process = await start(self._spec, self._hear, self._launcher.launch)
        await asyncio.wait_for(self._third.wait(), _PATIENCE_S)
        return process, workers_of(process.pid)

    def _hear(self, kind: str, data: Mapping[str, Any]) -> None:
        if kind == "trial" and not data["confirming"]:
            self._trials = data["number"]
            if self._trials >= _WARM_TRIALS:
                self._third.set()

    def kept(self) -> bool:
        """Whether all that was told of is stored."""
        with Store(self._spec.database) as store:
            return sum(run.trials for run in store.history()) >= self._trials


def workers_of(pid: int) -> list[int]:
    """Children of a process that have loaded CUDA."""
    children = [
        int(child)
        for path in Path(f"/proc/{pid}/task").glob("*/children")
        for child in path.read_text().split()
    ]
    return [child for child in children if "libcuda.so" in Path(f"/proc/{child}/maps").read_text()]


async def gone_s(pids: Sequence[int]) -> float:
    """When the last of them had ended, on the monotonic clock."""

    def wait() -> float:
        for pid in pids:
            try:
                handle = os.pidfd_open(pid)
            except ProcessLookupError:
                continue
            watch = select.poll()
            watch.register(handle, select.POLLIN)
            watch.poll(_PATIENCE_S * 1000)
            os.close(handle)
        return time.monotonic()

    return await asyncio.to_thread(wait)


async def told_to_stop(folder: Path, device: str, after_s: float) -> dict[str, Any]:
    """One job that is told to stop."""
    case = Case(folder, device)
    process, workers = await case.begin()
    await asyncio.sleep(after_s)
    leaving = asyncio.create_task(gone_s(workers))
    await asyncio.sleep(0.01)
    begun_s = time.monotonic()
    await process.stop(_GRACE_S)
    ended_s = time.monotonic()
    return result((begun_s, await leaving, ended_s), await process.result(), case, workers)


async def visited(folder: Path, device: str, after_s: float) -> dict[str, Any]:
    """One job whose GPU somebody else opens."""
    case = Case(folder, device)
    monitor = ContentionMonitor({device: identify(device).uuid})
    process, workers = await case.begin()
    await monitor.look(device, 1)
    leaving = asyncio.create_task(gone_s(workers))
    await asyncio.sleep(after_s)
    guest = await asyncio.create_subprocess_exec(sys.executable, "-c", _GUEST, stdout=subprocess.PIPE)
    try:
        await others(monitor, device, len(workers))
        seen_s = time.monotonic()
        await process.stop(_GRACE_S)
        ended_s = time.monotonic()
        if guest.stdout is None:
            raise RuntimeError("the guest says nothing")
        worked_s = float(await guest.stdout.readline())
    finally:
        guest.kill()
        await guest.wait()
        monitor.close()
    found = result((seen_s, await leaving, ended_s), await process.result(), case, workers)
    return {**found, "beside_guest_s": max(0.0, (await leaving) - worked_s)}


async def others(monitor: ContentionMonitor, device: str, ours: int) -> None:
    """Look as the daemon does until there are others."""
    while True:
        if (await monitor.look(device, ours)).busy:
            return
        await asyncio.sleep(_LOOK_EVERY_S)


def result(
    times_s: tuple[float, float, float], attempt: AttemptResult, case: Case, workers: Sequence[int]
) -> dict[str, Any]:
    """What came of one job, by when it was to leave, when its worker had, and when it had ended."""
    begun_s, left_s, ended_s = times_s
    return {
        "workers": len(workers),
        "gpu_s": left_s - begun_s,
        "end_s": ended_s - begun_s,
        "status": attempt.status,
        "kept": case.kept(),
    }


async def measure(device: str, repeats: int) -> dict[str, list[dict[str, Any]]]:
    """Both, again and again."""
    draw = random.Random(0)  # noqa: S311 - moments, no secrets
    found: dict[str, list[dict[str, Any]]] = {"told to stop": [], "others came": []}
    for _ in range(repeats):
        for name, play in (("told to stop", told_to_stop), ("others came", visited)):
            with tempfile.TemporaryDirectory() as folder:
                found[name].append(await play(Path(folder), device, draw.uniform(0.0, _LATEST_S)))
                print(name, found[name][-1], file=sys.stderr, flush=True)
    return found


def main() -> None:
    """Measure, print, write."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda:0")
    parser.add_argument("--repeats", type=int, default=20)
    parser.add_argument("--out", type=Path)
    words = parser.parse_args()
    found = asyncio.run(measure(words.device, words.repeats))
    for name, cases in found.items():
        for key in ("gpu_s", "end_s", "beside_guest_s"):
            values = [case[key] for case in cases if key in case]
            if values:
                print(f"{name}: {key} median {statistics.median(values):.3f} s, most {max(values):.3f} s")
        print(f"{name}: all trials kept: {all(case['kept'] for case in cases)}")
    if words.out is not None:
        record = {**provenance(), "device": words.device, "promised_s": PROMISED_S, "cases": found}
        words.out.write_text(json.dumps(record, indent=1) + "\n")
    if any(case["gpu_s"] >= PROMISED_S for cases in found.values() for case in cases):
        sys.exit(1)


if __name__ == "__main__":
    main()
