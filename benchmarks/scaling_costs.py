"""Costs of a trial and of a job to the writer and to the daemon, measured on this machine."""

import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tuner.daemon.devices.queue import DeviceQueue, DeviceQueues
from tuner.daemon.jobs.shares import Shares
from tuner.database.runs import Store
from tuner.model.jobs import DeviceIdentity, Job, JobSpec, JobState, Origin
from tuner.model.plan import Configuration
from tuner.model.records import Conditions
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.search.job_messages import LineReader, line, parse_line

_ROUNDS = 12
_NAME = "scan-lf:N=1024"


@dataclass(frozen=True)
class Costs:
    """What things cost a writer and a daemon.

    Attributes:
        writer_s: ``Store.add`` of one trial, with the mirror.
        event_s: a trial's line read by the daemon.
        wake_s: one device queue that looks up after a change of a job that concerns it.
        hear_s: one device queue that is asked whether a change concerns it; every queue is, of every change.
        look_s: one waiting job, each time that a queue looks for its next one.
        merge_trials_per_s: of ``tuner db merge``; its target, not measured here.
    """

    writer_s: float
    event_s: float
    wake_s: float
    hear_s: float
    look_s: float
    merge_trials_per_s: float = 1e6 / 60.0


def measured_costs() -> Costs:
    """Costs on this machine; the least of several rounds, as others use it too."""
    each = (_writer_s, _event_s, _wake_s, _hear_s, _look_s)
    return Costs(*(min(cost() for _ in range(_ROUNDS)) for cost in each))


def _writer_s(count: int = 100) -> float:
    device = DeviceIdentity("cuda:0", "NVIDIA H200", "GPU-1", "580", "13", modelled=False)
    conditions = Conditions(((_NAME, 65536),), {"scan-lf": "0" * 64}, device, "energy", "auto", 0, "off", {})
    measurement = Measurement(
        results=(WorkloadResult(Status.OK, 1e-4),),
        energy=Energy(1e-2, 1e-4, 600.0, "nvml", "gpu"),
        makespan_s=1e-4,
    )
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "tuner.db") as store:
        run = store.begin(conditions)
        begun_s = time.perf_counter()
        for number in range(1, count + 1):
            trial = Trial((Configuration({"P": 4, "L": 64, "r": 2, "S": number}),))
            store.add(run, number, trial, measurement, [_NAME])
        return (time.perf_counter() - begun_s) / count


def _event_s(count: int = 2000) -> float:
    configuration = {"P": 4, "L": 64, "r": 2, "S": 0, "shuffle": True, "store": "direct", "blocks": 1}
    data = {"number": 17, "status": "ok", "cost": 1.234e-2, "best": 1.2e-2, "joules": 123.4, "unit": "J"}
    text = line("trial", {**data, "configurations": {_NAME: configuration}, "watts": 612.0})
    reader = LineReader(lambda one: parse_line(one) and None)
    begun_s = time.perf_counter()
    for _ in range(count):
        reader.feed(text)
    return (time.perf_counter() - begun_s) / count


def _wake_s(queues: int = 200, changes: int = 20) -> float:
    """Queues that wait for a change or an end, as ``DeviceQueue`` does, and look up at each change."""

    async def waits(changed: asyncio.Event, stop: asyncio.Event) -> None:
        ended = asyncio.create_task(stop.wait())
        while not ended.done():
            change = asyncio.create_task(changed.wait())
            await asyncio.wait({ended, change}, timeout=60.0, return_when=asyncio.FIRST_COMPLETED)
            changed.clear()
            change.cancel()

    async def whole() -> float:
        stop, events = asyncio.Event(), [asyncio.Event() for _ in range(queues)]
        tasks = [asyncio.create_task(waits(event, stop)) for event in events]
        await asyncio.sleep(0)
        begun_s = time.perf_counter()
        for _ in range(changes):
            for event in events:
                event.set()
            while any(event.is_set() for event in events):  # noqa: ASYNC110 - until all have looked
                await asyncio.sleep(0)
        seconds = time.perf_counter() - begun_s
        stop.set()
        await asyncio.gather(*tasks)
        return seconds / (queues * changes)

    return asyncio.run(whole())


def _hear_s(queues: int = 1000, changes: int = 20) -> float:
    """Queues that run clients' jobs, asked about another job that has come to wait."""
    unused: Any = None
    devices = [f"cuda:{number}" for number in range(queues)]
    by_device = {device: DeviceQueue(device, unused, unused, unused, unused) for device in devices}
    for number, queue in enumerate(by_device.values()):
        queue.running = _job(number)
    waiting = [_job(queues)]
    asked = DeviceQueues(by_device)
    begun_s = time.perf_counter()
    for _ in range(changes):
        asked.hear(waiting)
    return (time.perf_counter() - begun_s) / (queues * changes)


def _job(number: int) -> Job:
    return Job(
        **vars(JobSpec((_NAME,), device="cuda:0")),
        wanted_device="cuda:0",
        id=number,
        origin=Origin.CLIENT,
        priority=0.0,
        state=JobState.QUEUED,
        reason="",
        run=None,
        attempts=0,
        trials=0,
        submitter=1000,
        created_at="2026-11-26T12:00:00+00:00",
        started_at=None,
        ended_at=None,
    )


def _look_s(jobs: int = 1000, looks: int = 20) -> float:
    records = [_job(number) for number in range(1, jobs + 1)]
    shares = Shares()
    begun_s = time.perf_counter()
    for _ in range(looks):
        list(shares.ordered(one for one in records if one.state is JobState.QUEUED))
    return (time.perf_counter() - begun_s) / (jobs * looks)
