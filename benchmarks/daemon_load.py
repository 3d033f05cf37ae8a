"""Asks a daemon for best configurations, so many times a second, while it tunes: how long do answers take?

Requests are sent at their times whether earlier ones were answered or not, and an answer's time counts from
when its request should have been sent, so that a daemon that stalls is seen to stall. Then the daemon is left
alone, to see what it costs when nobody asks. On a modelled GPU, of which a search keeps a processor busy.

    python benchmarks/daemon_load.py --out benchmarks/results/daemon-load.json
"""

import argparse
import asyncio
import collections
import contextlib
import itertools
import json
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from provenance import provenance

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from daemon_scene import MODELLED, Scene

STORED = ("scan-lf:N=4", "fft:N=4")
NEAREST = "scan-lf:N=8"  # a neighbour of what is stored
DEFAULT = "tridiag-cr:N=64"  # of a kernel that was never tuned
NEVER_SEEN, SMALLEST_N, NEW_SIZES = "scan-ks", 2, 8191
NEW_EVERY = 50  # requests
LONG_JOB = ("scan-lf:N=4", "fft:N=4")  # thousands of trials
PROMISED_MEDIAN_S, PROMISED_P99_S = 2e-3, 10e-3
PROMISED_CPU, PROMISED_BYTES = 1e-3, 80 * 10**6
_TIMEOUT_S = 10.0
_JOBS = 16  # the fastest machine must not run out of them


@dataclass
class Responses:
    """What came back."""

    seconds: dict[str, list[float]] = field(default_factory=lambda: collections.defaultdict(list))
    errors: collections.Counter[str] = field(default_factory=collections.Counter)


def main() -> int:
    """Ask, print a table, write it; 1 if what is promised was not kept."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--rate", type=float, default=500.0, help="requests per second")
    parser.add_argument("--seconds", type=float, default=60.0, help="of each part")
    parser.add_argument("--connections", choices=("kept", "fresh"), default="fresh")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        found = measure(Path(folder), options.rate, options.seconds, kept=options.connections == "kept")
    _show(found)
    if options.out is not None:
        document = {"provenance": provenance(), "connections": options.connections, **found}
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    return int(not kept_promises(found))


def measure(folder: Path, rate: float, seconds: float, *, kept: bool) -> dict[str, Any]:
    """The whole measurement, in an empty folder."""
    with Scene(folder, devices=(MODELLED,), settings="", bare=True) as scene:
        scene.start()
        client = scene.client()
        for workload in STORED:
            job = client.submit(workload, objective="energy", policy="random", budget=30)
            _await(scene, lambda number=job.id: client.job(number).ended)
        idle = _left_alone(scene, seconds)
        jobs = [
            client.submit(*LONG_JOB, objective="energy", policy="exhaustive", clocks="all", seed=seed)
            for seed in range(_JOBS)
        ]
        _await(scene, lambda: bool(scene.processes("runner")))
        before_s = _cpu_s(scene.pid)
        begun_s = time.monotonic()
        seen = asyncio.run(_ask(scene.socket, rate, seconds, kept=kept))
        share = (_cpu_s(scene.pid) - before_s) / (time.monotonic() - begun_s)
        left = [job for job in (client.job(job.id) for job in jobs) if not job.ended]
        found = {
            "requests_per_s": rate,
            "seconds": seconds,
            "sent": sum(map(len, seen.seconds.values())) + seen.errors.total(),
            "errors": dict(seen.errors),
            "answers": {
                origin: _spread(values)
                for origin, values in sorted({**seen.seconds, "all": _all(seen)}.items())
            },
            "jobs": {"left": len(left), "trials": sum(client.job(job.id).trials for job in jobs)},
            "loaded": {"cpu": share, "rss_bytes": _rss_bytes(scene.pid)},
            "idle": idle,
        }
        for job in reversed(left):  # the one that runs last, so that no other begins
            client.cancel(job.id)
        return found


def _await(scene: Scene, reached: Callable[[], bool]) -> None:
    if not scene.until(reached):
        raise RuntimeError(f"a job does not start or end: {scene.log.read_text()[-2000:]}")


def kept_promises(found: Mapping[str, Any]) -> bool:
    """Whether all that is promised was kept."""
    every, idle = found["answers"]["all"], found["idle"]
    return (
        not found["errors"]
        and found["jobs"]["left"] > 0
        and every["median_s"] < PROMISED_MEDIAN_S
        and every["p99_s"] < PROMISED_P99_S
        and idle["cpu"] < PROMISED_CPU
        and idle["rss_bytes"] < PROMISED_BYTES
    )


def _targets() -> Iterator[str]:
    """What is asked for, in turn; now and then, what nobody has asked for yet."""
    known = itertools.cycle((STORED[0], NEAREST, STORED[1], DEFAULT))
    for number in itertools.count():
        new = number % NEW_EVERY == NEW_EVERY - 1
        workload = f"{NEVER_SEEN}:N={SMALLEST_N + number // NEW_EVERY % NEW_SIZES}" if new else next(known)
        yield "/v1/best?" + urlencode({"workload": workload, "objective": "energy", "device": MODELLED})


async def _ask(path: Path, rate: float, seconds: float, *, kept: bool) -> Responses:
    """Send requests at their times."""
    seen, pool = Responses(), _Connections(path, kept=kept)
    begun_s = time.monotonic()
    tasks: set[asyncio.Task[None]] = set()
    for number, target in zip(range(round(rate * seconds)), _targets(), strict=False):
        due_s = begun_s + number / rate
        if (wait_s := due_s - time.monotonic()) > 0:
            await asyncio.sleep(wait_s)
        task = asyncio.create_task(_one(pool, target, due_s, seen))
        tasks.add(task)
        task.add_done_callback(tasks.discard)
    await asyncio.gather(*tasks)
    pool.close()
    return seen


async def _one(pool: "_Connections", target: str, due_s: float, seen: Responses) -> None:
    try:
        status, body = await asyncio.wait_for(pool.get(target), _TIMEOUT_S)
    except (OSError, EOFError, asyncio.TimeoutError) as error:
        seen.errors[type(error).__name__] += 1
        return
    took_s = time.monotonic() - due_s
    if status == 200:
        seen.seconds[json.loads(body)["origin"]].append(took_s)
    else:
        seen.errors[f"HTTP {status}"] += 1


class _Connections:
    """To the daemon: one for each request, or as many as are needed at a time."""

    def __init__(self, path: Path, *, kept: bool) -> None:
        self._path = path
        self._kept = kept
        self._free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def get(self, target: str) -> tuple[int, bytes]:
        """Status and body of an answer."""
        reader, writer = (
            self._free.pop() if self._free else await asyncio.open_unix_connection(str(self._path))
        )
        keep = "keep-alive" if self._kept else "close"
        writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: {keep}\r\n\r\n".encode())
        head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
        lines = (line.partition(":") for line in head.split("\r\n")[1:])
        fields = {name.lower(): value.strip() for name, _, value in lines}
        body = await reader.readexactly(int(fields["content-length"]))
        if self._kept and fields.get("connection", "").lower() != "close":
            self._free.append((reader, writer))
        else:
            writer.close()
        return int(head.split()[1]), body

    def close(self) -> None:
        """Close those that are open."""
        for _, writer in self._free:
            writer.close()


def _left_alone(scene: Scene, seconds: float) -> dict[str, float]:
    """What the daemon costs when nobody asks."""
    before_s, begun_s = _cpu_s(scene.pid), time.monotonic()
    time.sleep(seconds)  # nothing happens: that is the point
    spent_s = _cpu_s(scene.pid) - before_s
    return {"cpu": spent_s / (time.monotonic() - begun_s), "rss_bytes": _rss_bytes(scene.pid)}


def _cpu_s(pid: int) -> float:
    """Processor time of all threads so far, to the nanosecond; that of /proc/PID/stat ticks."""
    total_ns = 0
    for path in Path(f"/proc/{pid}/task").glob("*/schedstat"):
        with contextlib.suppress(OSError):
            total_ns += int(path.read_text().split()[0])
    return total_ns / 1e9


def _rss_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def _all(seen: Responses) -> list[float]:
    return [one for values in seen.seconds.values() for one in values]


def _spread(values: Sequence[float]) -> dict[str, float]:
    ordered = sorted(values)
    if not ordered:
        return {"count": 0, "median_s": float("nan"), "p99_s": float("nan"), "max_s": float("nan")}
    return {
        "count": len(ordered),
        "median_s": statistics.median(ordered),
        "p99_s": ordered[min(len(ordered) - 1, round(0.99 * len(ordered)))],
        "max_s": ordered[-1],
    }


def _show(found: Mapping[str, Any]) -> None:
    print(f"{'answer':12} {'count':>7} {'median':>9} {'99 %':>9} {'longest':>9}")
    for origin, row in found["answers"].items():
        times = " ".join(f"{1e3 * row[name]:>6.2f} ms" for name in ("median_s", "p99_s", "max_s"))
        print(f"{origin:12} {row['count']:>7} {times}")
    jobs = found["jobs"]
    print(f"errors: {found['errors'] or 'none'}; meanwhile jobs stored {jobs['trials']} trials")
    for name in ("loaded", "idle"):
        row = found[name]
        print(f"{name}: {100 * row['cpu']:.3f} % of a processor, {row['rss_bytes'] / 1e6:.1f} MB resident")


if __name__ == "__main__":
    sys.exit(main())
