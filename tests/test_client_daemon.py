"""The client and its commands against the daemon itself, on a modelled GPU."""

import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

import pytest
from cli_process import COMMAND, PATIENCE_S, document
from prepared_process import PreparedProcess

from tuner.client import Client, Use
from tuner.kernel_files.catalog import Catalog
from tuner.model.errors import DaemonRefusedError, InputError

SETTINGS = """
[idle]
calm_s = 0
[online]
refine = false
retune_stale = false
"""
DEVICE = "sim:jetson-tx1"
WORKLOAD = "scan-lf:N=4"


class Running:
    """A daemon with one state directory."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.socket = folder / "s"
        self._process: PreparedProcess | None = None
        self._stderr: TextIO | None = None
        (folder / "daemon.toml").write_text(SETTINGS)

    def start(self) -> None:
        """Return when it answers."""
        words = ("daemon", "--foreground", "--config", self._folder / "daemon.toml", "--device", DEVICE)
        places = ("--state", self._folder / "state", "--socket", self.socket)
        reading, writing = os.pipe()
        self._stderr = os.fdopen(reading)
        with os.fdopen(writing, "w") as log:
            environment = {**os.environ, "OMP_NUM_THREADS": "1"}
            self._process = PreparedProcess(
                COMMAND[2], [*map(str, (*words, *places))], {1: 1, 2: log.fileno()}, environment
            )
        lines = []
        for line in self._stderr:
            lines.append(line)
            if "ready" in line:
                return
        raise AssertionError("".join(lines))

    def stop(self, number: signal.Signals) -> int:
        assert self._process is not None
        assert self._stderr is not None
        self._process.send_signal(number)
        code, self._process = self._process.wait(PATIENCE_S), None
        with self._stderr as told:
            assert "Traceback" not in told.read()
        return code

    def close(self) -> None:
        if self._process is not None:
            self.stop(signal.SIGKILL)


@contextmanager
def running(folder: Path) -> Iterator[Running]:
    daemon = Running(folder)
    daemon.start()
    try:
        yield daemon
    finally:
        daemon.close()


def test_from_the_first_question_to_the_stored_answer(tmp_path: Path) -> None:
    """Asked, ordered, followed, served: every call does its part."""
    with running(tmp_path) as daemon:
        client = Client(daemon.socket)
        before = client.best(WORKLOAD)
        assert before.origin == "default"
        assert before.device["uuid"] == client.status()["devices"][0]["uuid"]
        client.used(Use((WORKLOAD,), count=3.0))
        with pytest.raises(InputError, match="no-such-kernel"):
            client.submit("no-such-kernel:N=4")
        with pytest.raises(InputError, match="no job 7"):
            client.job(7)

        job = client.submit(WORKLOAD, policy="random", budget=3, seed=1)
        assert (job.workloads, job.wanted_device, job.options["budget"]) == ((WORKLOAD,), "", 3)
        paused = client.pause(job.id)
        assert paused.state == "paused"
        assert [one.id for one in client.jobs(("paused",))] == [job.id]
        events = client.follow(job.id)
        assert next(events).kind == "state"
        assert client.resume(job.id).state in ("queued", "running")
        told = list(events)

        assert told[-1].data["state"] == "finished"
        assert len({event.id for event in told if event.id}) == sum(1 for event in told if event.id)
        with pytest.raises(DaemonRefusedError, match="finished"):
            client.cancel(job.id)
        answer = client.best(WORKLOAD)
        placed = answer.workloads[WORKLOAD]
        assert (answer.origin, answer.stale, placed.fresh) == ("stored", (), True)
        assert len(placed.source) == 64
        batch = Catalog.load().workload(WORKLOAD).batch
        other = client.best(f"{WORKLOAD},batch={batch // 2}")
        assert other.stale != ()
        assert other.workloads[WORKLOAD].fresh

        shown = document("best", WORKLOAD, "--socket", daemon.socket)
        assert (shown["run"], shown["origin"]) == (answer.run, "stored")
        assert document("jobs", str(job.id), "--socket", daemon.socket)["state"] == "finished"
        assert document("follow", str(job.id), "--socket", daemon.socket)["answer"]["run"] == answer.run
        assert daemon.stop(signal.SIGTERM) == 0
