"""A day of a daemon in a few minutes: does it grow?

A real daemon process whose clocks jump a minute ahead whenever nothing runs. Each minute clients ask for best
configurations, old and new, tell uses, scrape metrics, follow jobs and vanish in the middle, leave requests
half sent; each half hour one submits, pauses, resumes or cancels a job; each hour the settings are read
again. Windows open and close, budgets begin anew at midnight, and served answers are measured again. Memory,
descriptors, threads and children are noted each hour, and in the end what became of the daemon's own jobs.

With ``--clients`` the clocks go as they do, and so many clients ask for popular and rare workloads at once.
What the daemon weighs is noted each minute.

    python benchmarks/daemon_soak.py --out benchmarks/results/daemon-soak.json
    python benchmarks/daemon_soak.py --clients 20 --pause 1 --minutes 61 \
        --out benchmarks/results/daemon-growth.json
"""

import argparse
import json
import os
import random
import signal
import socket
import sqlite3
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from provenance import command_line, provenance, save

from tuner.client import Use
from tuner.model.errors import TunerError
from tuner.model.jobs import OWN

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))
from daemon_scene import MODELLED, PATIENCE_S, PLAYED, Scene

# --- many clients of a daemon at once, in real time, and what becomes of the jobs that it queues by itself

DEVICES = ("sim:jetson-tx1", "sim:k40c")
MOST_WITHDRAWN = 0.05
"""Share of the daemon's own jobs that it may cancel before they have run."""

_WORKLOADS = ("scan-lf", "scan-ks", "fft", "tridiag-cr", "tridiag-pcr")
_POPULAR = 0.5  # share of what is asked that everybody asks
_SIZES = 12  # of each kernel: powers of two
_BY_CLIENTS = ("by user", "by a client")  # reasons of what clients cancel
_ANSWERED = "answered by run"


class Crowd:
    """Clients that ask for popular and rare workloads, report uses, submit, cancel and pause.

    Args:
        scene: with a daemon that runs.
        clients: how many.
        pause_s: of a client between two requests, in the mean.
        seed: decides who asks for what.

    Attributes:
        done: how often each thing was done.
        failed: how often it was not, and why.
    """

    def __init__(self, scene: Scene, clients: int, pause_s: float, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._scene = scene
        self._pause_s = pause_s
        self._randoms = [random.Random(f"{seed}/{number}") for number in range(clients)]  # noqa: S311 - no secrets
        self._over = threading.Event()
        self._lock = threading.Lock()

    def sizes(self, times: int, every_s: float = 60.0) -> Iterator[dict[str, int]]:
        """Let them ask for so many times so long; how large the daemon is at the begin and after each."""
        threads = [threading.Thread(target=self._client, args=(rng,)) for rng in self._randoms]
        for thread in threads:
            thread.start()
        begun_s = time.monotonic()
        try:
            for number in range(times + 1):
                time.sleep(max(0.0, begun_s + number * every_s - time.monotonic()))
                yield {"minute": number, **size(self._scene)}
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _client(self, rng: random.Random) -> None:
        client = self._scene.client(PATIENCE_S)
        while not self._over.wait(rng.expovariate(1.0 / self._pause_s)):
            what, device, workload = rng.random(), rng.choice(DEVICES), _workload(rng)
            if what < 0.8:
                count = rng.paretovariate(1.0)  # a few use an answer far more often than others
                self._do("best", lambda: client.best(workload, device=device, count=count))  # noqa: B023
            elif what < 0.995:
                use = Use((workload,), device=device, count=rng.paretovariate(1.0))
                self._do("uses", lambda: client.used(use))  # noqa: B023
            else:
                self._do("submit", lambda: self._submit(client, rng, workload, device))  # noqa: B023

    def _submit(self, client: Any, rng: random.Random, workload: str, device: str) -> None:
        job = client.submit(workload, device=device, policy="random", seed=rng.randrange(2**31), budget=30)
        if rng.random() < 0.3:
            client.cancel(job.id)

    def _do(self, what: str, action: Any) -> None:
        try:
            action()
        except (TunerError, OSError) as error:
            told = f"{what}: {type(error).__name__}: {error}"[:300]
            with self._lock:
                self.failed[told] += 1
        else:
            with self._lock:
                self.done[what] += 1


def _workload(rng: random.Random) -> str:
    kernel = rng.choice(_WORKLOADS)
    exponent = 2 if rng.random() < _POPULAR else 1 + rng.randrange(_SIZES)
    return f"{kernel}:N={2**exponent}"


def own_jobs(database: Path) -> dict[str, Any]:
    """What became of the jobs that the daemon queued by itself: counts by state, and why it withdrew some.

    ``withdrawn_share`` is of all that it queued; what a client cancelled counts as queued only. So does what
    was ``answered`` by another run, mostly of a job that a client submitted later: nothing is left to do.
    """
    marks = ", ".join("?" * len(OWN))
    query = f"SELECT state, reason FROM jobs WHERE origin IN ({marks})"  # noqa: S608 - marks only
    with closing(sqlite3.connect(f"file:{database}?mode=ro", uri=True, timeout=PATIENCE_S)) as connection:
        rows = connection.execute(query, [origin.value for origin in OWN]).fetchall()
    reasons = Counter(
        " ".join(word for word in reason.split() if not word.isdecimal())
        for state, reason in rows
        if state == "cancelled" and not reason.startswith(_BY_CLIENTS)
    )
    answered = reasons.pop(_ANSWERED, 0)
    withdrawn = sum(reasons.values())
    return {
        "queued": len(rows),
        "states": dict(Counter(state for state, _ in rows)),
        "answered": answered,
        "withdrawn": withdrawn,
        "withdrawn_because": dict(reasons),
        "withdrawn_share": withdrawn / len(rows) if rows else 0.0,
    }


def few_withdrawn(own: Mapping[str, Any]) -> bool:
    """Whether the daemon kept to what it had planned."""
    return bool(own["withdrawn_share"] <= MOST_WITHDRAWN)


def told(own: Mapping[str, Any]) -> str:
    """In a line."""
    because = f": {json.dumps(own['withdrawn_because'])}" if own["withdrawn"] else ""
    return (
        f"own jobs: {own['queued']} queued, {own['withdrawn']} withdrawn"
        f" ({own['withdrawn_share']:.1%}{because}), {own['answered']} answered by other runs;"
        f" {json.dumps(own['states'])}"
    )


# --- the command -----------------------------------------------------------------------------------

PROMISED_GROWTH_BYTES = 5 * 10**6
WARM_UP_HOURS = 2
PROMISED_GROWTH_CLIENTS_BYTES = 2 * 10**6
WARM_UP_MINUTES = 10
REQUESTS_A_MINUTE = 10
KNOWN = 0.999  # of what is asked for: every other answer is a search
SETTINGS = """
[[set]]
name = "nightly"
workloads = ["fft:N=4"]

[[window]]
start = "0 */3 * * *"
hours = 2

[budget]
seconds_per_day = 2000.0
joules_per_day = 20000.0

[online]
sample_every_hours = 1
"""
_KERNELS = ("scan-lf", "scan-ks", "tridiag-cr", "tridiag-pcr")
_RUN_S = 60.0  # real seconds that a job may take


def main() -> int:
    """Live through the day, print a line an hour, write them; 1 if it grew."""
    parser = command_line(__doc__)
    parser.add_argument("--hours", type=float, default=24.0, help="that pass in jumps; without --clients")
    parser.add_argument("--clients", type=int, default=0, help="that ask at once, in real time")
    parser.add_argument(
        "--pause", type=float, default=0.5, help="of a client between two requests, s, in the mean"
    )
    parser.add_argument("--minutes", type=int, default=8, help="real ones; with --clients")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--log", type=Path, help="where the log of the daemon is kept")
    options = parser.parse_args()
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory() as folder:
        live, kept = (_crowd, kept_with_clients) if options.clients else (_day, kept_promises)
        found = live(options, Path(folder))
    found["seconds"] = round(time.monotonic() - begun_s, 1)
    print(f"done: {found['done']}; failed: {found['failed'] or 'nothing'}")
    print(told(found["own_jobs"]))
    save(options.out, {"provenance": provenance(), "seed": options.seed, **found})
    return int(not kept(found))


def _day(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Live through a day of jumps."""
    print(f"{'hour':>4} {'resident':>10} {'descriptors':>11} {'threads':>7} {'children':>8} {'zombies':>7}")
    with Scene(folder, settings=SETTINGS) as scene:
        day = Day(scene, random.Random(options.seed))  # noqa: S311 - no secrets
        scene.start()
        hours = []
        for hour in day.hours(options.hours):
            hours.append(hour)
            print(
                f"{hour['hour']:>4} {hour['rss_bytes'] / 1e6:>7.2f} MB {hour['descriptors']:>11}"
                f" {hour['threads']:>7} {hour['children']:>8} {hour['zombies']:>7}",
                flush=True,
            )
        found = {"hours": hours, "done": dict(day.done), "failed": dict(day.failed)}
        found |= growth(hours, WARM_UP_HOURS)
        found |= _ended(options, scene)
    print(
        f"growth after {WARM_UP_HOURS} h: {found['growth_bytes'] / 1e6:.2f} MB,"
        f" {found['growth_descriptors']} descriptors"
    )
    return found


def _crowd(options: argparse.Namespace, folder: Path) -> dict[str, Any]:
    """Have clients ask at once for some minutes."""
    print(f"{'minute':>6} {'resident':>10} {'descriptors':>11} {'threads':>7} {'processor':>10}")
    with Scene(folder, devices=DEVICES, settings="", bare=True) as scene:
        scene.start()
        crowd = Crowd(scene, options.clients, options.pause, options.seed)
        minutes = []
        for minute in crowd.sizes(options.minutes):
            minutes.append(minute)
            print(
                f"{minute['minute']:>6} {minute['rss_bytes'] / 1e6:>7.2f} MB {minute['descriptors']:>11}"
                f" {minute['threads']:>7} {minute['cpu_ms'] / 1e3:>8.2f} s",
                flush=True,
            )
        found = {
            "clients": options.clients,
            "pause_s": options.pause,
            "minutes": minutes,
            "done": dict(crowd.done),
            "failed": dict(crowd.failed),
            **growth(minutes, WARM_UP_MINUTES),
            **_ended(options, scene),
        }
    print(f"growth after {WARM_UP_MINUTES} min: {found['growth_bytes'] / 1e6:.2f} MB")
    return found


def _ended(options: argparse.Namespace, scene: Scene) -> dict[str, Any]:
    """End the daemon: how it ended, and what became of its own jobs."""
    status = scene.stop()
    if options.log is not None:
        options.log.write_bytes(scene.log.read_bytes())
    return {"exit_status": status, "own_jobs": own_jobs(scene.database)}


def growth(rows: Sequence[Mapping[str, int]], warm_up: int) -> dict[str, int]:
    """What it has more at the end than after the warm-up, which takes so many rows."""
    first, last = rows[min(warm_up, len(rows) - 1)], rows[-1]
    return {
        "growth_bytes": last["rss_bytes"] - first["rss_bytes"],
        "growth_descriptors": last["descriptors"] - first["descriptors"],
        "zombies": max(row["zombies"] for row in rows),
    }


def kept_promises(found: Mapping[str, Any]) -> bool:
    """Whether it has not grown, and lost nobody."""
    return (
        found["growth_bytes"] < PROMISED_GROWTH_BYTES
        and found["growth_descriptors"] <= 0
        and not found["zombies"]
        and _ended_well(found)
    )


def kept_with_clients(found: Mapping[str, Any]) -> bool:
    """Whether it has not grown with clients, answered all, kept to what it had planned, and ended well."""
    return found["growth_bytes"] <= PROMISED_GROWTH_CLIENTS_BYTES and _ended_well(found)


def _ended_well(found: Mapping[str, Any]) -> bool:
    return not found["failed"] and few_withdrawn(found["own_jobs"]) and found["exit_status"] == 0


class Day:
    """What a day brings.

    Args:
        scene: with a daemon that is about to start.
        rng: decides who asks for what.

    Attributes:
        done: how often each thing was done.
        failed: how often it was not, and why.
    """

    def __init__(self, scene: Scene, rng: random.Random) -> None:
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._scene = scene
        self._rng = rng
        self._client = scene.client()
        self._jobs: list[int] = []

    def hours(self, count: float) -> Iterator[dict[str, int]]:
        """Live through so many hours; how large the daemon is at the begin and after each."""
        self._quiet()
        yield {"hour": 0, **size(self._scene)}
        for minute in range(1, round(count * 60) + 1):
            self._minute(minute)
            self._quiet()
            self._scene.clocks.jump(60.0, 60.0)
            if minute % 60 == 0:
                self._quiet()
                yield {"hour": minute // 60, **size(self._scene)}

    def _minute(self, minute: int) -> None:
        for _ in range(REQUESTS_A_MINUTE):
            self._do("best", lambda: self._client.best(self._workload(), count=self._rng.random() * 100))
        self._do("uses", lambda: self._client.used(Use(("scan-lf:N=4",), count=50.0)))
        self._do("metrics", lambda: _get(self._scene.socket, "/metrics"))
        self._do("status", self._client.status)
        self._do("half a request", lambda: _leave(self._scene.socket, b"POST /v1/jobs HTTP/1.1\r\nHost:"))
        if minute % 30 == 0:
            self._do("submit", self._submit)
        if self._jobs:
            number = self._rng.choice(self._jobs)
            path = f"GET /v1/jobs/{number}/events HTTP/1.1\r\nHost: localhost\r\n\r\n"
            self._do("follow and vanish", lambda: _leave(self._scene.socket, path.encode(), hear=True))
            self._do("list", lambda: self._client.jobs(limit=20))
        if minute % 60 == 15:
            self._do("reload", lambda: os.kill(self._scene.pid, signal.SIGHUP))

    def _submit(self) -> None:
        device = self._rng.choice((MODELLED, MODELLED, PLAYED))
        own: dict[str, Any] = {"budget": 30}
        if device == PLAYED:
            own = {"budget": 3, "window_s": 0.02, "clocks": "345:1980:105", "energy_precision": 0.2}
        job = self._client.submit(
            self._workload(), device=device, policy="random", seed=self._rng.randrange(2**31), **own
        )
        self._jobs.append(job.id)
        for verb in self._rng.choice(((), ("pause", "resume"), ("cancel",), ("pause", "cancel"))):
            getattr(self._client, verb)(job.id)
            self.done[verb] += 1

    def _workload(self) -> str:
        """One of a few that everybody asks for, or one that nobody asked for yet."""
        if self._rng.random() < KNOWN:
            return self._rng.choice(("scan-lf:N=4", "scan-lf:N=8", "fft:N=4", "tridiag-cr:N=4"))
        return f"{self._rng.choice(_KERNELS)}:N={self._rng.randrange(2, 4097)}"

    def _do(self, what: str, action: Any) -> None:
        try:
            action()
        except (TunerError, OSError) as error:
            self.failed[f"{what}: {type(error).__name__}: {error}"[:300]] += 1
        else:
            self.done[what] += 1

    def _quiet(self) -> None:
        """Wait until no job runs: time that jumps would be time that they take."""
        if not self._scene.until(lambda: not self._scene.processes("runner"), _RUN_S):
            self.failed["a job does not end"] += 1
        self._scene.rest_gpu()


def size(scene: Scene) -> dict[str, int]:
    """How large a daemon is, and what it has used of the processor."""
    own = scene.pid
    folder = Path(f"/proc/{own}")
    pages = int((folder / "statm").read_text().split()[1])
    used = (folder / "stat").read_text().rpartition(")")[2].split()[11:13]
    processes = scene.processes()
    return {
        "rss_bytes": pages * os.sysconf("SC_PAGE_SIZE"),
        "cpu_ms": round(sum(map(int, used)) * 1000 / os.sysconf("SC_CLK_TCK")),
        "descriptors": len(list((folder / "fd").iterdir())),
        "threads": len(list((folder / "task").iterdir())),
        "children": sum(one.pid != own for one in processes),
        "zombies": sum(one.state == "Z" for one in processes),
    }


def _get(path: Path, target: str) -> bytes:
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10.0)
        connection.connect(str(path))
        connection.sendall(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
        answer = b"".join(iter(lambda: connection.recv(2**16), b""))
    if not answer.startswith(b"HTTP/1.1 200"):
        raise OSError(f"{target}: {answer[:100]!r}")
    return answer


def _leave(path: Path, request: bytes, *, hear: bool = False) -> None:
    """Send something, perhaps hear how the answer begins, and go without a word."""
    with socket.socket(socket.AF_UNIX) as connection:
        connection.settimeout(10.0)
        connection.connect(str(path))
        connection.sendall(request)
        if hear:
            connection.recv(100)


if __name__ == "__main__":
    sys.exit(main())
