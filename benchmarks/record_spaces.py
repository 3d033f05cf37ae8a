"""Measures every configuration of many workloads on the GPUs of this machine, one process per GPU.

Compiling goes ahead on all cores while the GPUs measure; every space is written when it is complete, so that
an interrupted recording keeps what it has. The order of a space's trials is random: drift of the GPU becomes
noise. Windows are short: no warm-up between configurations, so energies of neighbours in time share heat.

    python benchmarks/record_spaces.py --out DIR [--gpus 4] [--limit 540] [--skip DIR] [--only PREFIX ...]
"""

import argparse
import gzip
import itertools
import json
import multiprocessing as mp
import queue
import random
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from provenance import provenance

from tuner.answer_checks import AnswerChecks
from tuner.candidates import Prepared, prepare
from tuner.catalog import Catalog
from tuner.devices.sensors import open_meter
from tuner.held_clock import HeldClock
from tuner.model import Configuration, Measurement, Status, Trial, WorkloadResult
from tuner.one_window import WindowRunner
from tuner.worker import WorkerDevice

TIME_S, ENERGY_S = 0.04, 0.2  # windows
CHECKED_TO = 2**18  # larger problems are checked for the fastest only: the reference is made on the host
FASTEST = 40
JOINT = ("scan-lf:N=1024", "tridiag-wm:N=512", "fft:N=1024", "scan-ks:N=256")
SMALL = ("scan-lf", "tridiag-wm", "fft", "scan-ks", "tridiag-pcr", "tridiag-lf", "tridiag-cr")


@dataclass(frozen=True)
class Job:
    """Workloads measured together, and whether their joules are wanted."""

    workloads: tuple[str, ...]
    energy: bool

    @property
    def name(self) -> str:
        """File name of the recording."""
        return "+".join(self.workloads).replace(":N=", "-") + ".json.gz"


def jobs() -> list[Job]:
    """All recordings, the most wanted first."""
    found = [Job(JOINT, True)]
    found += [Job((f"{kernel}:N=1024",), True) for kernel in SMALL]
    found += [Job((f"fft-large:N={2**e}",), False) for e in (16, 18, 20)]
    found += [Job((f"{k}:N={n}",), False) for n in (256, 512, 128, 2048, 4096, 64) for k in SMALL]
    found += [Job((f"{k}:N=8192",), False) for k in ("scan-lf", "scan-ks", "fft")]
    return found + [Job((f"fft-large:N={2**e}",), False) for e in (14, 15, 23, 22, 17, 21, 19)]


def block_sizes(item: Prepared) -> tuple[Configuration, ...]:
    """One configuration per block size, otherwise nearest to the default: the case of the papers."""
    role = item.kernel.roles["threads_per_block"]
    chosen: dict[Any, Configuration] = {}
    for candidate in item.candidates:
        configuration = candidate.configuration
        near = sum(configuration[name] == item.default[name] for name in configuration)
        known = chosen.get(configuration[role])
        if known is None or near > sum(known[name] == item.default[name] for name in known):
            chosen[configuration[role]] = configuration
    return tuple(chosen.values())


def compile_ahead(wanted: list[Job], ready: "list[mp.Queue[Job]]", spec: str) -> None:
    """Compile the jobs in order; every GPU is told, the joint one to the first alone."""
    catalog = Catalog.load()
    device = WorkerDevice(spec)
    for job in wanted:
        begun = time.monotonic()
        prepare([_pair(catalog, text) for text in job.workloads], device)
        print(f"compiled {job.name} in {time.monotonic() - begun:.1f} s", flush=True)
        ready[0].put(job)


def measure(gpu: int, ready: "mp.Queue[Job]", out: Path, until: float) -> None:
    """Measure what is ready on one GPU until there is nothing left or the time is over."""
    catalog = Catalog.load()
    device = WorkerDevice(f"cuda:{gpu}")
    meter, why = open_meter(device)
    print(f"cuda:{gpu}: {device.identity.uuid} {why}", flush=True)
    while time.time() < until:
        try:
            job = ready.get(timeout=1.0)
        except queue.Empty:
            continue
        if not job.workloads:
            return
        begun = time.monotonic()
        document = record(job, catalog, device, meter, until)
        with gzip.open(out / job.name, "wt") as file:
            json.dump(document, file)
        print(
            f"cuda:{gpu}: {job.name}: {len(document['trials'])} of {document['size']} trials,"
            f" {time.monotonic() - begun:.1f} s",
            flush=True,
        )


def record(job: Job, catalog: Catalog, device: WorkerDevice, meter: Any, until: float) -> dict[str, Any]:
    """Every trial of a job."""
    prepared = prepare([_pair(catalog, text) for text in job.workloads], device)
    joint = len(prepared) > 1
    lists = [block_sizes(i) if joint else tuple(c.configuration for c in i.candidates) for i in prepared]
    size = 1
    for one in lists:
        size *= len(one)
    trials = [Trial(chosen) for chosen in itertools.product(*lists)]
    random.Random(1).shuffle(trials)  # noqa: S311 - an order, not a secret
    windows = WindowRunner(device, meter if job.energy else None, HeldClock(None))
    checks = AnswerChecks(device, 0)
    small = all(int(dict(i.workload.sizes)["N"]) <= CHECKED_TO for i in prepared)
    measured: dict[Trial, Measurement] = {}
    for trial in trials:
        if time.time() > until:
            break
        plans = [i.plans[c] for i, c in zip(prepared, trial.configurations, strict=True)]
        if small:
            checks.make(checks.missing(plans))
            found = checks.of(plans)
            if any(check.status is not Status.OK for check in found):
                measured[trial] = Measurement(tuple(WorkloadResult(c.status, detail=c.detail) for c in found))
                continue
        measured[trial] = windows.run(plans, ENERGY_S if job.energy else TIME_S)
    unchecked = [] if small else check_fastest(prepared[0], measured, checks)
    return {
        "provenance": provenance(),
        "device": {"identity": asdict(device.identity), "limits": asdict(device.limits)},
        "window_s": ENERGY_S if job.energy else TIME_S,
        "sensor": meter.info.name if job.energy and meter is not None else None,
        "size": size,
        "workloads": [described(item, one) for item, one in zip(prepared, lists, strict=True)],
        "trials": [
            {
                "at": [one.index(c) for one, c in zip(lists, trial.configurations, strict=True)],
                "unchecked": trial in unchecked,
                **asdict(measurement),
            }
            for trial, measurement in measured.items()
        ],
    }


def check_fastest(item: Prepared, measured: dict[Trial, Measurement], checks: AnswerChecks) -> list[Trial]:
    """Check the fastest trials of a single workload; returns those left unchecked."""
    order = sorted((t for t, m in measured.items() if m.ok), key=lambda t: measured[t].makespan_s or 0.0)
    for trial in order[:FASTEST]:
        plan = item.plans[trial.configurations[0]]
        checks.make([plan])
        (check,) = checks.of([plan])
        if check.status is not Status.OK:
            failed = (WorkloadResult(check.status, detail=check.detail),)
            measured[trial] = replace(measured[trial], results=failed)
    return order[FASTEST:]


def described(item: Prepared, chosen: tuple[Configuration, ...]) -> dict[str, Any]:
    """A workload and the resources of its configurations."""
    known = {candidate.configuration: candidate for candidate in item.candidates}
    return {
        "name": str(item.workload),
        "workload": asdict(item.workload),
        "family": item.kernel.family,
        "fingerprint": item.kernel.fingerprint,
        "roles": dict(item.kernel.roles),
        "tunables": {name: list(values) for name, values in item.space.tunables.items()},
        "default": dict(item.default),
        "min_occupancy": item.min_occupancy,
        "pruned": dict(item.pruned),
        "work": asdict(item.plans[chosen[0]].work),
        "configurations": [dict(configuration) for configuration in chosen],
        "steps": [item.plans[c].work.steps for c in chosen],
        "work_of": [[w.bytes, w.operations, w.steps] for w in (item.plans[c].work for c in chosen)],
        "stages": [stages(item.plans[c], known[c].resources) for c in chosen],
    }


def stages(plan: Any, resources: Any) -> list[Mapping[str, Any]]:
    """Launch geometry and compiled resources of the stages of a plan."""
    return [
        {
            "name": stage.name,
            "grid": stage.grid,
            "block": stage.block,
            "shared_bytes": stage.shared_bytes,
            "resident": stage.resident,
            "cluster": stage.cluster,
            "registers_per_thread": taken.registers_per_thread,
            "static_shared_bytes": taken.static_shared_bytes,
        }
        for stage, taken in zip(plan.stages, resources, strict=True)
    ]


def _pair(catalog: Catalog, text: str) -> tuple[Any, Any]:
    workload = catalog.workload(text)
    return catalog.kernel(workload.kernel), workload


def main() -> None:
    """Record with all GPUs until everything is measured or the time is over."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds")
    parser.add_argument("--skip", type=Path, help="a folder of recordings that need not be made again")
    parser.add_argument("--only", nargs="*", default=[""], help="prefixes of workloads")
    options = parser.parse_args()
    options.out.mkdir(parents=True, exist_ok=True)
    until = time.time() + options.limit
    done = {path.name for path in options.skip.iterdir()} if options.skip else set()
    wanted = [
        job
        for job in jobs()
        if job.name not in done and any("+".join(job.workloads).startswith(p) for p in options.only)
    ]
    context = mp.get_context("spawn")
    ready: mp.Queue[Job] = context.Queue()
    workers = [
        context.Process(target=measure, args=(gpu, ready, options.out, until)) for gpu in range(options.gpus)
    ]
    for worker in workers:
        worker.start()
    compiling = context.Process(target=compile_ahead, args=(wanted, [ready], "cuda:0"))
    compiling.start()
    compiling.join(max(0.0, until - time.time()))
    compiling.terminate()
    for _ in workers:
        ready.put(Job((), False))
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
