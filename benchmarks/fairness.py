"""One user floods a daemon with jobs of the highest priority: is another user served as before?

A real daemon on a modelled GPU. In turn, blocks without and with the flood: without it, a third user has one
job after the other; with it, one user queues a thousand jobs, as fast as they are taken, and goes on trying.
In each block another user asks for best configurations at fixed times, and submits one job. Required: the
job starts within one job's time, and the 99th percentile of the answers is at most twice that without the
flood. Needs root, to ask as three users; they are made members of the socket's group.

    python benchmarks/fairness.py --out benchmarks/results/fairness.json
"""

import contextlib
import json
import os
import signal
import statistics
import sys
import tempfile
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path
from typing import Any

from provenance import command_line, provenance, save

sys.path.insert(0, str(Path(__file__).parent.parent / "tests"))

from daemon_scene import ASKED_ONLY, MODELLED, Scene

from tuner.client import Client, Job
from tuner.model.errors import DaemonError

FLOODER, NEIGHBOUR, OTHER = 54_321, 54_322, 54_323  # ids that no user has
WORKLOAD = "scan-lf:N=4"
HIGHEST = 1e6
MOST_P99_RATIO = 2.0
RETRY_S = 0.05  # between attempts of the flood to queue more
LOOK_S = 0.02
PATIENCE_S = 60.0  # a job that has not started by then, after more than ten others, does not start


@dataclass(frozen=True)
class Plan:
    """How much is done.

    Attributes:
        blocks: of each kind.
        flood: jobs that are queued at once, at most.
        requests: for best, per block.
        rate: of them, per second.
        budget: trials of a job.
    """

    blocks: int
    flood: int
    requests: int
    rate: float
    budget: int


@dataclass
class NeighbourRecord:
    """What the other user met, in blocks of one kind.

    Attributes:
        best_s: times to answer.
        delays_s: from the submission of a job to its start; None for one that was given up.
        errors: answers that were errors.
    """

    best_s: list[float] = field(default_factory=list)
    delays_s: list[float | None] = field(default_factory=list)
    errors: int = 0


def main() -> int:
    """Measure, print a table, write it; 1 where a user was not served as required, 2 without root."""
    parser = command_line(__doc__)
    parser.add_argument("--blocks", type=int, default=6, help="of each kind")
    parser.add_argument("--flood", type=int, default=1000, help="jobs that are queued at once, at most")
    parser.add_argument("--requests", type=int, default=400, help="for best, per block")
    parser.add_argument("--rate", type=float, default=50.0, help="of them, per second")
    parser.add_argument("--budget", type=int, default=40, help="trials of a job")
    options = parser.parse_args()
    if os.geteuid() != 0:
        print("needs root: the clients are three users")
        return 2
    with tempfile.TemporaryDirectory() as folder:
        plan = Plan(options.blocks, options.flood, options.requests, options.rate, options.budget)
        found = measure(Path(folder), plan)
    show(found)
    save(options.out, {"provenance": provenance(), **found})
    return int(not found["held"])


def measure(folder: Path, plan: Plan) -> dict[str, Any]:
    """The whole measurement, in an empty folder."""
    folder.chmod(0o755)  # so that other users reach the socket
    calm, flooded = NeighbourRecord(), NeighbourRecord()
    taken = 0
    with Scene(folder, devices=(MODELLED,), settings=ASKED_ONLY, bare=True) as scene:
        scene.start()
        first = _submit(scene.client(), 0, plan.budget)
        _await(scene, lambda: first is not None and scene.client().job(first.id).ended)
        for _ in range(plan.blocks):
            with _client(NEIGHBOUR, scene, lambda client: _one_after_the_other(client, plan)):
                _block(scene, NEIGHBOUR, calm, plan)
            taken = max(taken, flooded_block(scene, flooded, plan))
        jobs = scene.client().jobs(["finished"], limit=500)
    lasted_s = [_lasted_s(job) for job in jobs]
    return judged(calm, flooded, lasted_s, {"asked": plan.flood, "waiting": taken})


def judged(
    calm: NeighbourRecord, flooded: NeighbourRecord, lasted_s: Sequence[float], flood: Mapping[str, int]
) -> dict[str, Any]:
    """The figures, and whether they are as required.

    Args:
        calm: blocks without the flood.
        flooded: blocks with it.
        lasted_s: times that jobs took.
        flood: jobs that were queued, and that waited.
    """
    longest_s = max(lasted_s)
    ratio = _p99(flooded.best_s) / _p99(calm.best_s)
    waits = [None if delay_s is None else delay_s / longest_s for delay_s in flooded.delays_s]
    held = {
        "job starts": all(wait is not None and wait <= 1.0 for wait in waits),
        "best": ratio <= MOST_P99_RATIO and not flooded.errors,
    }
    return {
        "flood": flood,
        "job_s": {"median": statistics.median(lasted_s), "longest": longest_s, "jobs": len(lasted_s)},
        "without": _described(calm),
        "with": _described(flooded),
        "delay_in_job_times": waits,
        "p99_ratio": ratio,
        "kept": held,
        "held": all(held.values()),
    }


def _described(seen: NeighbourRecord) -> dict[str, Any]:
    return {
        "requests": len(seen.best_s),
        "errors": seen.errors,
        "median_s": statistics.median(seen.best_s),
        "p99_s": _p99(seen.best_s),
        "longest_s": max(seen.best_s),
        "delays_s": seen.delays_s,
    }


def _p99(seconds: Sequence[float]) -> float:
    return sorted(seconds)[max(0, round(0.99 * len(seconds)) - 1)]


def flooded_block(scene: Scene, seen: NeighbourRecord, plan: Plan, before: int = 2) -> int:
    """A block with the flood; returns how many of its jobs waited.

    Args:
        scene: with its daemon.
        seen: what the other user meets is added.
        plan: of the block.
        before: jobs of the flood that start before the other user comes.
    """
    with _client(FLOODER, scene, lambda client: _flood(client, plan)):
        _block(scene, FLOODER, seen, plan, before)
        return sum(job.submitter == FLOODER for job in scene.client().jobs(["queued"], limit=500))


# --- users -------------------------------------------------------------------------------------------


@contextlib.contextmanager
def _client(user: int, scene: Scene, work: Callable[[Client], None]) -> Iterator[None]:
    """Another user at work in a process of its own, which then cancels its jobs and ends."""
    pid = _fork_as(user, scene, work)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGTERM)
        os.waitpid(pid, 0)
        cleared = _fork_as(user, scene, _cancel_own)
        os.waitpid(cleared, 0)
        _await(scene, lambda: not scene.client().jobs(["running"]))


def _fork_as(user: int, scene: Scene, work: Callable[[Client], None]) -> int:
    """Run something as a user of the socket's group; returns the process."""
    group = scene.socket.stat().st_gid
    pid = os.fork()
    if pid:
        return pid
    signal.signal(signal.SIGTERM, signal.SIG_DFL)
    try:
        os.setgroups([])
        os.setresgid(group, group, group)
        os.setresuid(user, user, user)
        work(Client(scene.socket))
    except BaseException:  # noqa: BLE001 - nothing of this process may go on in the copy
        traceback.print_exc()
    finally:
        os._exit(0)


def _submit(client: Client, seed: int, budget: int, priority: float = 0.0) -> Job | None:
    """A new job; None where the daemon takes none now."""
    with contextlib.suppress(DaemonError):
        return client.submit(
            WORKLOAD, objective="energy", policy="random", priority=priority, seed=seed, budget=budget
        )
    return None


def _flood(client: Client, plan: Plan) -> None:
    for seed in range(10**9):
        _submit(client, seed, plan.budget, HIGHEST)
        if seed >= plan.flood:
            time.sleep(RETRY_S)


def _one_after_the_other(client: Client, plan: Plan) -> None:
    while True:
        job = _submit(client, _new_seed(), plan.budget)
        while job is not None and not client.job(job.id).ended:
            time.sleep(LOOK_S)


def _new_seed() -> int:
    return time.monotonic_ns() % 10**9


def _cancel_own(client: Client) -> None:
    while own := [
        job
        for job in client.jobs(["queued", "running", "paused"], limit=500)
        if job.submitter == os.geteuid()
    ]:
        for job in sorted(own, key=lambda one: one.state == "running"):
            with contextlib.suppress(DaemonError):
                client.cancel(job.id)


# --- what the other user meets -----------------------------------------------------------------------


def _block(scene: Scene, busy: int, seen: NeighbourRecord, plan: Plan, before: int = 2) -> None:
    """Wait until so many jobs of the busy user have begun; then ask, with a job submitted in the middle."""
    client = scene.client()
    started: set[int] = set()

    def busy_enough() -> bool:
        running = [job for job in client.jobs(["running"]) if job.submitter == busy]
        started.update(job.id for job in running)
        return bool(running) and len(started) >= before

    _await(scene, busy_enough)
    reading, writing = os.pipe()

    def ask(other: Client) -> None:
        os.write(writing, json.dumps(_asked(other, plan)).encode() + b"\n")

    pid = _fork_as(OTHER, scene, ask)
    os.close(writing)
    with os.fdopen(reading, "rb") as said:
        found = json.loads(said.readline())
    os.waitpid(pid, 0)
    seen.best_s += found["best_s"]
    seen.errors += found["errors"]
    seen.delays_s.append(found["delay_s"])


def _asked(client: Client, plan: Plan) -> dict[str, Any]:
    """Ask at fixed times; an answer's time counts from when it should have been asked for."""
    best_s, errors = [], 0
    job = None
    begun_s = time.monotonic()
    for number in range(plan.requests):
        due_s = begun_s + number / plan.rate
        time.sleep(max(0.0, due_s - time.monotonic()))
        if number == plan.requests // 4:
            job = _submit(client, _new_seed(), plan.budget)
            due_s = time.monotonic()
        try:
            client.best(WORKLOAD)
        except DaemonError:
            errors += 1
        best_s.append(time.monotonic() - due_s)
    return {"best_s": best_s, "errors": errors, "delay_s": _delay_s(client, job)}


def _delay_s(client: Client, job: Job | None) -> float | None:
    """Seconds from the submission of a job to its start; None where it does not start."""
    if job is None:
        return None
    give_up_s = time.monotonic() + PATIENCE_S
    while (known := client.job(job.id)).started_at is None:
        if time.monotonic() > give_up_s:
            client.cancel(job.id)
            return None
        time.sleep(LOOK_S)
    while not client.job(job.id).ended:  # so that blocks are alike
        time.sleep(LOOK_S)
    return _between_s(known.created_at, known.started_at)


def _lasted_s(job: Job) -> float:
    return _between_s(job.started_at, job.ended_at)


def _between_s(begin: str | None, end: str | None) -> float:
    if begin is None or end is None:
        raise ValueError("the job has not ended")
    return (datetime.fromisoformat(end) - datetime.fromisoformat(begin)).total_seconds()


def _await(scene: Scene, reached: Callable[[], bool]) -> None:
    if not scene.until(reached):
        raise RuntimeError(f"a job does not start or end: {scene.log.read_text()[-2000:]}")


def show(found: Mapping[str, Any]) -> None:
    """Print the table."""
    print(f"{'':14} {'requests':>9} {'errors':>7} {'median':>10} {'99 %':>10} {'longest':>10}")
    for name in ("without", "with"):
        row = found[name]
        times = (f"{row[key] * 1e3:8.2f} ms"[:11] for key in ("median_s", "p99_s", "longest_s"))
        print(f"{name + ' flood':14} {row['requests']:>9} {row['errors']:>7} {' '.join(times)}")
    print(f"99 % with the flood: {found['p99_ratio']:.2f} x (at most {MOST_P99_RATIO:g} x)")
    waits = ", ".join("never" if wait is None else f"{wait:.2f}" for wait in found["delay_in_job_times"])
    print(f"the other's job starts after, in job times of {found['job_s']['longest']:.2f} s: {waits}")
    print(f"jobs of the flood that waited: {found['flood']['waiting']} of {found['flood']['asked']}")
    print("held" if found["held"] else "NOT HELD")


if __name__ == "__main__":
    sys.exit(main())
