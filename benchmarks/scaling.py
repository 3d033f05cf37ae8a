"""What breaks first at 10, 1,000 and 100,000 GPUs: device queues, writer and daemon, simulated. Modelled.

Jobs are drawn from recorded runs of an H100 and an H200: so many trials, so many seconds each. A GPU tunes
one job after another. Of each trial it waits until the writer has stored it; of each job, until the daemon
has placed the next one. Writer and daemon serve one after another, at costs that are measured.

Three designs: *one daemon* with all GPUs; *one driver*, whose workers measure trials and which alone writes
(``--on dask://``); *a daemon a host* of eight GPUs, whose databases are merged into one. *Queue times* are of
jobs that arrive at random while GPUs are 80 % busy, with one queue for each GPU and with one for all of a
kind. *Lost work* is of GPUs that fail at random: with every trial stored, the trial that was being measured
and the start of another attempt; where nothing but answers were kept, the whole run so far.

    python benchmarks/scaling.py --out benchmarks/results/scaling.json
"""

import argparse
import asyncio
import heapq
import json
import random
import statistics
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from provenance import provenance

from tuner.daemon.devices.queue import DeviceQueue, DeviceQueues
from tuner.daemon.jobs.shares import Shares
from tuner.database.runs import Store
from tuner.model.jobs import DeviceIdentity, Job, JobSpec, JobState, Origin
from tuner.model.plan import Configuration
from tuner.model.records import Conditions
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult
from tuner.search.job_messages import LineReader, line, parse_line

# --- costs of a trial and of a job to the writer and to the daemon, measured on this machine ------

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
        asked.notify(waiting)
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


# --- the command -----------------------------------------------------------------------------------

GPUS = (10, 1_000, 100_000)
HOST = 8  # GPUs
DAY_S = 86_400.0
# Grattafiori et al., "The Llama 3 Herd of Models" (2024), section 3.3.4: 419 unexpected interruptions in 54
# days on 16,384 H100.
GPU_DAYS_PER_FAILURE = 16_384 * 54 / 419
CHANGES_PER_JOB = 3  # queued, running, finished: every queue is asked whether they concern it
OWN_CHANGES = 2  # running, finished: they wake the queue of the job; the others run clients' jobs meanwhile
WAITING_PER_GPU = 10  # jobs
START_S = 0.2  # of an attempt, from the daemon's order to its run: the median of 25 small jobs was 0.17 s
BUSY = 0.8
_MOST_EVENTS = 400_000


@dataclass(frozen=True)
class RecordedRun:
    """A run of a real GPU."""

    trials: int
    seconds: float

    @property
    def trial_s(self) -> float:
        """Seconds of one trial."""
        return self.seconds / self.trials


RUNS = (  # trials and wall time of runs on an H100 and H200s that were published
    RecordedRun(27, 70.22643672099997),
    RecordedRun(18, 100.56546329400001),
    RecordedRun(22, 77.622981316),
    RecordedRun(106, 22.193010055000002),
    RecordedRun(18, 57.50690637699998),
    RecordedRun(30, 12.810625627999997),
    RecordedRun(21, 103.19078390199999),
    RecordedRun(22, 90.55135410899999),
    RecordedRun(5, 62.113362144999996),
    RecordedRun(8, 68.87178098499999),
    RecordedRun(46, 129.90359397999998),
    RecordedRun(46, 113.20850282799998),
)


def main() -> None:
    """Measure the costs, simulate, print tables, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--costs", type=Path, help="take the costs of this result instead of measuring")
    options = parser.parse_args()
    origin = provenance()
    costs, measured = (measured_costs(), origin) if options.costs is None else costs_of(options.costs)
    document = {"label": "modelled", "provenance": origin, **modelled(costs, options.seed)}
    document["costs_measured"] = {key: measured[key] for key in ("command", "date", "cpus")}
    print(json.dumps({"costs": document["costs"], "limits": document["limits"]}, indent=1))
    show(document)
    if options.out is not None:
        options.out.write_text(json.dumps(document, indent=1) + "\n")


def costs_of(path: Path) -> tuple[Costs, dict[str, Any]]:
    """The costs of a result, and the command, date and machine that measured all of them.

    Raises:
        SystemExit: the file does not say when they were measured.
    """
    document = json.loads(path.read_text())
    measured = document.get("costs_measured")
    if measured is None:
        raise SystemExit(
            f"{path}: does not say when its costs were measured; measure them anew without --costs"
        )
    return Costs(**document["costs"]), measured


def modelled(costs: Costs, seed: int) -> dict[str, Any]:
    """The whole model."""
    runs = RUNS
    return {
        "seed": seed,
        "costs": asdict(costs),
        "runs": [asdict(run) for run in runs],
        "limits": limits(costs, runs),
        "rows": [row(gpus, costs, runs, random.Random(seed)) for gpus in GPUS],  # noqa: S311 - a model
    }


def limits(costs: Costs, runs: Sequence[RecordedRun]) -> dict[str, float]:
    """GPUs at which a part is always busy, by arithmetic: a check of the simulation."""
    job_s, trials = (statistics.mean(one) for one in zip(*((r.seconds, r.trials) for r in runs), strict=True))
    trials_per_s = trials / job_s
    return {
        "trials_per_gpu_s": trials_per_s,
        "job_s": job_s,
        "writer_gpus": 1.0 / (trials_per_s * costs.writer_s),
        "events_gpus": 1.0 / (trials_per_s * costs.event_s),
        "one_daemon_gpus": (job_s / _every_queue_s(costs)) ** 0.5,  # its work grows as the square
        "merge_gpus": costs.merge_trials_per_s / trials_per_s,
    }


def row(gpus: int, costs: Costs, runs: Sequence[RecordedRun], chance: random.Random) -> dict[str, Any]:
    """All that is modelled of so many GPUs."""
    per_day = gpus * limits(costs, runs)["trials_per_gpu_s"] * DAY_S
    return {
        "gpus": gpus,
        "one_daemon": simulated(gpus, costs, runs, chance, daemon=True),
        "one_driver": simulated(gpus, costs, runs, chance, daemon=False),
        "daemon_a_host": simulated(min(gpus, HOST), costs, runs, chance, daemon=True),
        "merge_hours_per_day": per_day / costs.merge_trials_per_s / 3600.0,
        "queue_times": queue_times(gpus, runs, chance),
        "failures": failures(gpus, runs, chance),
    }


# --- the simulation ------------------------------------------------------------------------------


class Server:
    """Serves one after another.

    Attributes:
        busy_s: time for which it served.
        waits_s: of those served, from their coming to their begin.
    """

    def __init__(self) -> None:
        self._free_s = 0.0
        self.busy_s = 0.0
        self.waits_s: list[float] = []

    def serve(self, at_s: float, takes_s: float) -> float:
        """When somebody is served who comes now."""
        begin_s = max(at_s, self._free_s)
        self.waits_s.append(begin_s - at_s)
        self._free_s = begin_s + takes_s
        self.busy_s += takes_s
        return self._free_s


def simulated(
    gpus: int, costs: Costs, runs: Sequence[RecordedRun], chance: random.Random, *, daemon: bool
) -> dict[str, float]:
    """GPUs that tune one job after another behind one writer and, with ``daemon``, one event loop.

    Ten jobs wait for each GPU. Every run begins somewhere in its middle, so that they do not end together.
    """
    writer, loop = Server(), Server()
    place_s = _place_s(gpus, costs) if daemon else 0.0
    heap: list[tuple[float, int, int, float]] = []  # when a trial ends, GPU, trials left, seconds of a trial
    for gpu in range(gpus):
        run = chance.choice(runs)
        heap.append((chance.random() * run.trial_s, gpu, chance.randrange(run.trials), run.trial_s))
    heapq.heapify(heap)
    measured_s = now_s = begun_s = 0.0
    events = max(_MOST_EVENTS, 20 * gpus)
    for number in range(events):
        now_s, gpu, left, trial_s = heapq.heappop(heap)
        if number == events // 2:  # the queues have filled
            measured_s, begun_s, writer.busy_s, loop.busy_s = 0.0, now_s, 0.0, 0.0
            writer.waits_s.clear()
            loop.waits_s.clear()
        measured_s += trial_s
        stored_s = writer.serve(now_s, costs.writer_s)
        if daemon:
            loop.serve(now_s, costs.event_s)
        if not left:
            run = chance.choice(runs)
            left, trial_s = run.trials, run.trial_s
            stored_s = (loop.serve(stored_s, place_s) if daemon else stored_s) + START_S
        heapq.heappush(heap, (stored_s + trial_s, gpu, left - 1, trial_s))
    took_s = now_s - begun_s
    return {
        "simulated_s": took_s,
        "efficiency": min(1.0, measured_s / (gpus * took_s)),
        "writer_busy": min(1.0, writer.busy_s / took_s),
        "loop_busy": min(1.0, loop.busy_s / took_s),
        "writer_wait_p99_s": _percentile(writer.waits_s, 0.99),
        "loop_wait_p99_s": _percentile(loop.waits_s, 0.99),
    }


def _place_s(gpus: int, costs: Costs) -> float:
    """Seconds of the daemon for a job: all queues hear of it, its own wakes and looks at all that wait."""
    return OWN_CHANGES * costs.wake_s + gpus * _every_queue_s(costs)


def _every_queue_s(costs: Costs) -> float:
    """Seconds for a job, for each GPU of the daemon."""
    return CHANGES_PER_JOB * costs.hear_s + WAITING_PER_GPU * costs.look_s


def queue_times(gpus: int, runs: Sequence[RecordedRun], chance: random.Random) -> dict[str, float]:
    """How long jobs wait that come at random, in queues of single GPUs and in one queue of the kind."""
    every_s = statistics.mean(run.seconds for run in runs) / (gpus * BUSY)
    own, shared = [0.0] * gpus, [0.0] * gpus  # when each GPU is free
    own_s: list[float] = []
    shared_s: list[float] = []
    now_s = 0.0
    jobs = min(max(20_000, 20 * gpus), 2_000_000)
    for number in range(jobs):
        now_s += chance.expovariate(1.0 / every_s)
        takes_s = chance.choice(runs).seconds
        gpu = chance.randrange(gpus)
        begin_s = max(now_s, own[gpu])
        own[gpu] = begin_s + takes_s
        free_s = heapq.heappop(shared)
        heapq.heappush(shared, max(now_s, free_s) + takes_s)
        if number >= jobs // 2:  # the first half fills the queues
            own_s.append(begin_s - now_s)
            shared_s.append(max(0.0, free_s - now_s))
    return {
        "own_median_s": statistics.median(own_s),
        "own_p99_s": _percentile(own_s, 0.99),
        "shared_median_s": statistics.median(shared_s),
        "shared_p99_s": _percentile(shared_s, 0.99),
    }


def failures(
    gpus: int, runs: Sequence[RecordedRun], chance: random.Random, days: int = 1000
) -> dict[str, float]:
    """Failures a day, and GPU seconds a day that are measured again."""
    lengths = [run.seconds for run in runs]
    count = 0
    trial_s = whole_s = 0.0
    at_days = chance.expovariate(gpus / GPU_DAYS_PER_FAILURE)
    while at_days < days:
        count += 1
        run = chance.choices(runs, weights=lengths)[0]  # longer runs are hit more often
        done_s = chance.random() * run.seconds
        trial_s += done_s % run.trial_s + START_S
        whole_s += done_s + START_S
        at_days += chance.expovariate(gpus / GPU_DAYS_PER_FAILURE)
    return {
        "per_day": count / days,
        "lost_with_trials_stored_s_per_day": trial_s / days,
        "lost_with_answers_alone_s_per_day": whole_s / days,
    }


def _percentile(values: Sequence[float], share: float) -> float:
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))] if ordered else 0.0


# --- tables --------------------------------------------------------------------------------------


def show(document: dict[str, Any]) -> None:
    """Print the tables of docs/lab/scaling.md."""
    print("| GPUs | design | efficiency | writer busy | daemon busy | waits for writer, daemon, p99 |")
    for one in document["rows"]:
        for name in ("one_daemon", "one_driver", "daemon_a_host"):
            found = one[name]
            shares = [f"{100 * found[key]:.1f} %" for key in ("efficiency", "writer_busy", "loop_busy")]
            waits = f"{found['writer_wait_p99_s']:.2g} s, {found['loop_wait_p99_s']:.2g} s"
            _print_row(f"{one['gpus']:,}", name.replace("_", " "), *shares, waits)
    print("| GPUs | own queue: median, p99 | one queue of the kind: median, p99 | merging, hours a day |")
    for one in document["rows"]:
        times = {name: f"{value:,.0f} s" for name, value in one["queue_times"].items()}
        own, shared = (f"{times[f'{name}_median_s']}, {times[f'{name}_p99_s']}" for name in ("own", "shared"))
        _print_row(f"{one['gpus']:,}", own, shared, f"{one['merge_hours_per_day']:,.2g}")
    print("| GPUs | failures a day | GPU seconds lost a day: trials stored, answers alone |")
    for one in document["rows"]:
        per_day, *lost = (f"{value:,.3g}" for value in one["failures"].values())
        _print_row(f"{one['gpus']:,}", per_day, " s, ".join(lost) + " s")


def _print_row(*cells: str) -> None:
    print(f"| {' | '.join(cells)} |")


if __name__ == "__main__":
    sys.exit(main())
