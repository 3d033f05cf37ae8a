"""Many clients of a daemon at once, in real time, and what becomes of the jobs that it queues by itself."""

import json
import random
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Mapping
from contextlib import closing
from pathlib import Path
from typing import Any

from daemon_scene import PATIENCE_S, Scene

from tuner.client import Use
from tuner.model.errors import TunerError
from tuner.model.jobs import OWN

DEVICES = ("sim:jetson-tx1", "sim:k40c")
MOST_WITHDRAWN = 0.05
"""Share of the daemon's own jobs that it may cancel before they have run."""

_KERNELS = ("scan-lf", "scan-ks", "fft", "tridiag-cr", "tridiag-pcr")
_POPULAR = 0.5  # share of what is asked that everybody asks
_SIZES = 12  # of each kernel: powers of two
_BY_CLIENTS = ("by user", "by a client")  # reasons of what clients cancel
_ANSWERED = "answered by run"
_THINKS_S = 0.5  # a client between two requests, in the mean


class Crowd:
    """Clients that ask for popular and rare workloads, report uses, submit, cancel and pause.

    Args:
        scene: with a daemon that runs.
        clients: how many.
        seed: decides who asks for what.

    Attributes:
        done: how often each thing was done.
        failed: how often it was not, and why.
    """

    def __init__(self, scene: Scene, clients: int, seed: int) -> None:
        self.done: Counter[str] = Counter()
        self.failed: Counter[str] = Counter()
        self._scene = scene
        self._randoms = [random.Random(f"{seed}/{number}") for number in range(clients)]  # noqa: S311 - no secrets
        self._over = threading.Event()
        self._lock = threading.Lock()

    def live(self, seconds: float) -> None:
        """Let them ask for so long."""
        threads = [threading.Thread(target=self._client, args=(rng,)) for rng in self._randoms]
        for thread in threads:
            thread.start()
        try:
            time.sleep(seconds)
        finally:
            self._over.set()
            for thread in threads:
                thread.join()

    def _client(self, rng: random.Random) -> None:
        client = self._scene.client(PATIENCE_S)
        while not self._over.wait(rng.expovariate(1.0 / _THINKS_S)):
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
    kernel = rng.choice(_KERNELS)
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
