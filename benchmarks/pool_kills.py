"""Breaks a pool while a run measures with it: are trials lost or stored twice, and does the run end?

A real scheduler of Dask and real worker processes, with simulated devices that take real time
(``pool_real_time``); no GPU is needed. Each fault strikes at a random trial of a run over a complete space:

    worker      a worker process is killed -9
    scheduler   the scheduler is killed -9; it and its workers are started anew, and the run is resumed
    driver      the process of the run is killed -9, and the run is resumed
    freeze ...  a worker, its guard, the scheduler or the run is stopped (SIGSTOP) for 1 s, 10 s, 40 s or for
                ever; a scheduler that stays frozen is started anew, a run is killed, and the run is resumed
    network     every connection between scheduler and workers is dropped, by a proxy between them

    python benchmarks/pool_kills.py --count 50 --out benchmarks/results/pool-kills.json
"""

import argparse
import itertools
import json
import math
import os
import random
import signal
import socket
import sqlite3
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from functools import partial
from pathlib import Path
from typing import Any

import psutil
from distributed import Security
from pool_real_time import SPEED
from provenance import command_line, provenance

from tuner.pool.worker import certificates_in_environment

REAL_TIME = Path(__file__).parent / "pool_real_time.py"
FROZEN = ("freeze worker", "freeze guard", "freeze scheduler", "freeze run")
KINDS = ("worker", "scheduler", "driver", "network", *FROZEN)
SHARES = (10, 6, 6, 6, 10, 4, 4, 4)  # of fifty
LOOPBACK = "127.0.0.1"
FROZEN_S = (1.0, 10.0, 40.0, math.inf)  # in turn
ENDS_S = 90.0  # within which a run ends whose scheduler stays frozen
WAIT_S = 300.0


class Proxy:
    """Hands connections on to the scheduler, until it is told to drop them all."""

    def __init__(self, target: int) -> None:
        self._target = target
        self._listener = socket.create_server((LOOPBACK, 0))
        self.port = self._listener.getsockname()[1]
        self._open: list[socket.socket] = []
        threading.Thread(target=self._serve, daemon=True).start()

    def drop(self) -> None:
        """Close all connections; new ones are taken."""
        there, self._open = self._open, []
        for one in there:
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection((LOOPBACK, self._target))
            except OSError:
                near.close()
                continue
            self._open += [near, far]
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=_copy, args=(source, sink), daemon=True).start()


def _copy(source: socket.socket, sink: socket.socket) -> None:
    with suppress(OSError):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for one in (source, sink):
        with suppress(OSError):
            one.close()


class Scene:
    """A scheduler, its workers behind a proxy, and a run; each can be broken.

    Args:
        folder: for the database and logs.
        workers: how many.
        workload: whose complete space is measured.
    """

    def __init__(self, folder: Path, workers: int, workload: str) -> None:
        self.database = folder / "pool.db"
        self._folder = folder
        self._count = workers
        self._workload = workload
        self._crew: list[subprocess.Popen[bytes]] = []
        self._started = 0
        self.scheduler: subprocess.Popen[bytes]
        self.proxy: Proxy
        self.run: subprocess.Popen[bytes]
        self.start_pool()

    def start_pool(self) -> None:
        """Start scheduler, proxy and workers."""
        with socket.socket() as free:
            free.bind((LOOPBACK, 0))
            self._port = free.getsockname()[1]
        self.scheduler = self._process(
            *("distributed.cli.dask_scheduler", "--host", LOOPBACK, "--port", str(self._port)),
            *("--protocol", "tls", "--no-dashboard"),
        )
        self.proxy = Proxy(self._port)
        self._crew = [
            self._process("tuner", "worker", f"tls://{LOOPBACK}:{self.proxy.port}")
            for _ in range(self._count)
        ]

    def start_run(self, *, resume: bool) -> None:
        """Begin the run, or go on with it."""
        words = ["run", self._workload, "--policy", "exhaustive", "--objective", "energy"]
        words += ["--device", "sim:jetson-tx1", "--on", f"dask://{LOOPBACK}:{self._port}"]
        words += ["--database", str(self.database), *(["--resume"] if resume else [])]
        self.run = self._process("tuner", *words)

    def workers(self) -> list[psutil.Process]:
        """The processes that measure."""
        found = []
        for guard in self._crew:
            with suppress(psutil.Error):
                children = psutil.Process(guard.pid).children()
                found += [one for one in children if "spawn_main" in " ".join(one.cmdline())]
        return found

    def guards(self) -> list[psutil.Process]:
        """The processes that start those that measure."""
        return [psutil.Process(guard.pid) for guard in self._crew]

    def trials(self) -> list[tuple[int, int, str]]:
        """Run, number and text of every stored trial."""
        if not self.database.exists():
            return []
        with suppress(sqlite3.OperationalError), closing(sqlite3.connect(self.database)) as connection:
            return list(connection.execute("SELECT run_id, number, trial FROM trials"))
        return []

    def close(self) -> None:
        """End everything."""
        for one in (self.run, *self._crew, self.scheduler):
            with suppress(psutil.Error):
                for child in psutil.Process(one.pid).children(recursive=True):
                    with suppress(psutil.Error):
                        child.kill()
            one.kill()
            one.wait()

    def restart(self) -> None:
        """Start scheduler and workers anew, and go on with the run."""
        for one in (*self._crew, self.scheduler):
            one.kill()
            one.wait()
        self.start_pool()
        self.start_run(resume=True)

    def _process(self, *words: str) -> "subprocess.Popen[bytes]":
        self._started += 1
        log = (self._folder / f"{self._started}-{words[0]}.log").open("wb")
        return subprocess.Popen([sys.executable, "-m", *words], stdout=log, stderr=log)


def strike(scene: Scene, kind: str, seconds: float, draw: random.Random) -> None:
    """Let one fault happen, and put right what does not come back by itself."""
    if kind == "worker":
        crew = scene.workers()
        if crew:
            with suppress(psutil.Error):
                draw.choice(crew).kill()
    elif kind in FROZEN:
        freeze(scene, kind, seconds, draw)
    elif kind == "network":
        scene.proxy.drop()
    elif kind == "scheduler":
        scene.scheduler.send_signal(signal.SIGKILL)
        scene.run.wait(WAIT_S)
        scene.restart()
    else:
        scene.run.send_signal(signal.SIGKILL)
        scene.run.wait(WAIT_S)
        scene.start_run(resume=True)


def freeze(scene: Scene, kind: str, seconds: float, draw: random.Random) -> None:
    """Stop a process for a time or for ever, and do what a user does where it does not come back."""
    found = {
        "freeze worker": scene.workers,
        "freeze guard": scene.guards,
        "freeze scheduler": lambda: [psutil.Process(scene.scheduler.pid)],
        "freeze run": lambda: [psutil.Process(scene.run.pid)],
    }[kind]()
    if not found:
        return
    chosen = draw.choice(found)
    with suppress(psutil.Error):
        chosen.suspend()
        if not math.isinf(seconds):
            time.sleep(seconds)
            chosen.resume()
            return
    if kind == "freeze scheduler":
        scene.run.wait(ENDS_S)  # by itself
        scene.restart()
    elif kind == "freeze run":
        scene.run.send_signal(signal.SIGKILL)
        scene.run.wait(WAIT_S)
        scene.start_run(resume=True)


def one_run(
    options: argparse.Namespace, faults: list[tuple[str, float]], draw: random.Random
) -> dict[str, Any]:
    """A run over a complete space with some faults at random trials."""
    with tempfile.TemporaryDirectory() as name, ExitStack() as stack:
        scene = Scene(Path(name), options.workers, options.workload)
        stack.callback(scene.close)
        scene.start_run(resume=False)
        met = Counter[str]()
        places = sorted(draw.sample(range(2, options.space - 2), len(faults)))
        for place, (kind, seconds) in zip(places, faults, strict=True):
            _await(scene, place)
            if scene.run.poll() is not None:
                break
            strike(scene, kind, seconds, draw)
            met[name_of(kind, seconds)] += 1
        resumed = 0
        while scene.run.wait(WAIT_S) != 0 and resumed < len(faults):
            resumed += 1
            scene.start_run(resume=True)
        stored = scene.trials()
        texts = Counter((run, trial) for run, _, trial in stored)
        runs = {run for run, _, _ in stored}
        return {
            "faults": dict(met),
            "exit_code": scene.run.returncode,
            "trials": len(stored),
            "lost": options.space - len(texts),
            "twice": sum(count - 1 for count in texts.values()),
            "runs": len(runs),
        }


def name_of(kind: str, seconds: float) -> str:
    """What a fault is counted as."""
    length = "for ever" if math.isinf(seconds) else f"for {seconds:g} s"
    return f"{kind} {length}" if kind in FROZEN else kind


def _await(scene: Scene, count: int) -> None:
    """Wait until so many trials are stored, or the run has ended."""
    until = time.monotonic() + WAIT_S
    while len(scene.trials()) < count and scene.run.poll() is None and time.monotonic() < until:
        time.sleep(0.05)


def main() -> int:
    """Break, print what was lost, write it; 1 if anything was."""
    parser = command_line(__doc__)
    parser.add_argument("--count", type=int, default=50, help="faults")
    parser.add_argument("--each", type=int, default=5, help="faults in one run")
    parser.add_argument("--at-once", type=int, default=1, help="runs at a time; each wants two processors")
    parser.add_argument("--workers", type=int, default=3)
    parser.add_argument("--workload", default="scan-lf:N=1024")
    parser.add_argument("--space", type=int, default=88, help="trials of the workload's complete space")
    parser.add_argument("--speed", type=float, default=3.0, help="virtual seconds in a real one")
    parser.add_argument("--seed", type=int, default=0)
    options = parser.parse_args()
    os.environ[SPEED] = str(options.speed)
    os.environ.update(certificates_in_environment(Security.temporary()))
    os.environ["DASK_DISTRIBUTED__WORKER__PRELOAD"] = json.dumps([str(REAL_TIME)])
    draw = random.Random(options.seed)  # noqa: S311 - which fault comes in which run
    lengths = {kind: itertools.cycle(FROZEN_S) for kind in FROZEN}
    kinds = [kind for kind, share in zip(KINDS, SHARES, strict=True) for _ in range(share)]
    faults = [(kind, next(lengths[kind]) if kind in FROZEN else 0.0) for kind in kinds]
    draw.shuffle(faults)
    faults = (faults * (options.count // len(faults) + 1))[: options.count]
    begun_s, rows = time.monotonic(), []
    shares = [faults[first : first + options.each] for first in range(0, len(faults), options.each)]
    draws = [random.Random(f"{options.seed} {index}") for index in range(len(shares))]  # noqa: S311
    with ThreadPoolExecutor(options.at_once) as threads:
        for row in threads.map(partial(one_run, options), shares, draws):
            rows.append(row)
            print(json.dumps(row), flush=True)
    totals = {name: sum(row[name] for row in rows) for name in ("trials", "lost", "twice")}
    met = sum((Counter(row["faults"]) for row in rows), Counter[str]())
    unended = sum(row["exit_code"] != 0 or row["runs"] != 1 for row in rows)
    print(f"faults: {dict(met)}; {totals['trials']} trials, {totals['lost']} lost, {totals['twice']} twice;")
    print(f"{unended} of {len(rows)} runs did not end well; {time.monotonic() - begun_s:.0f} s")
    if options.out is not None:
        document = {
            "provenance": provenance(),
            "modelled": True,
            "seed": options.seed,
            "faults": dict(met),
            **totals,
            "runs": rows,
            "not_ended": unended,
            "seconds": round(time.monotonic() - begun_s, 1),
        }
        options.out.write_text(json.dumps(document, indent=2) + "\n", encoding="utf-8")
    return 1 if totals["lost"] or totals["twice"] or unended else 0


if __name__ == "__main__":
    sys.exit(main())
