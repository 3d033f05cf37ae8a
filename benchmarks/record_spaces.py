"""Measures every configuration of many workloads on the GPUs of this machine, one process per GPU.

Compiling goes ahead on all cores while the GPUs measure; every space is a file of its own, written when it is
measured, so that an interrupted recording keeps what it has. The order of a space's trials is random: drift
of the GPU becomes noise. Windows are short and nothing warms up between configurations, so that energies of
neighbours in time share heat.

    python benchmarks/record_spaces.py --out DIR [--gpus 4] [--limit 540] [--skip FILE] [--only PREFIX ...]
    python benchmarks/record_spaces.py --out DIR --into tuner/recordings/h200.zip

The second form measures nothing: it adds the complete spaces of DIR to an archive.
"""

import argparse
import itertools
import multiprocessing as mp
import queue
import random
import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from provenance import provenance
from tuner.power.base import Meter

from tuner.devices.sensors import open_meter
from tuner.devices.worker import WorkerDevice
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.measurer import AnswerChecks
from tuner.measurement.settle import SettingLock
from tuner.measurement.window import WindowRunner
from tuner.model.plan import Configuration
from tuner.model.trial import Flag, FlagKind, Measurement, Status, Trial, WorkloadResult
from tuner.recordings.files import RecordingFile, read, write
from tuner.recordings.values import RecordedSpace
from tuner.search.candidates import PreparedWorkload
from tuner.search.compilation import prepare_compiled
from tuner.search.replaying import recorded_space

TIME_S, ENERGY_S = 0.04, 0.2  # windows
CHECKED_TO = 2**16  # larger problems are checked for the fastest only: the reference is made on the host
FASTEST = 40
UNCHECKED = Flag(FlagKind.UNCHECKED, "only the fastest answers of this space were checked")
DIGITS, DIGITS_OF_SPREADS, DIGITS_OF_SPENT = 6, 3, 4  # kept of numbers; windows know no more
JOINT = ("scan-lf:N=1024", "tridiag-wm:N=512", "fft:N=1024", "scan-ks:N=256")
SMALL = ("scan-lf", "tridiag-wm", "fft", "scan-ks", "tridiag-pcr", "tridiag-lf", "tridiag-cr")
ORDER = ("scan-lf", "scan-ks", "tridiag-cr", "tridiag-pcr", "tridiag-lf", "tridiag-wm", "fft", "fft-large")


@dataclass(frozen=True)
class Job:
    """Workloads measured together, and whether their joules are wanted."""

    workloads: tuple[str, ...]
    energy: bool

    @property
    def name(self) -> str:
        """File name of the recording."""
        return "+".join(self.workloads).replace(":N=", "-") + ".zip"


def jobs() -> list[Job]:
    """All recordings, the most wanted first."""
    found = [Job(JOINT, True)]
    found += [Job((f"{kernel}:N=1024",), True) for kernel in SMALL]
    found += [Job((f"fft-large:N={2**e}",), False) for e in (16, 18, 20)]
    found += [Job((f"{k}:N={n}",), False) for n in (256, 512, 128, 2048, 4096, 64) for k in SMALL]
    found += [Job((f"{k}:N=8192",), False) for k in ("scan-lf", "scan-ks", "fft")]
    return found + [Job((f"fft-large:N={2**e}",), False) for e in (14, 15, 23, 22, 17, 21, 19)]


def block_sizes(item: PreparedWorkload) -> tuple[Configuration, ...]:
    """One configuration per block size, otherwise nearest to the default: the case of the papers."""
    role = item.kernel.roles["threads_per_block"]
    chosen: dict[Any, Configuration] = {}
    for candidate in item.candidates:
        configuration = candidate.configuration
        near = _in_common(configuration, item.default)
        known = chosen.get(configuration[role])
        if known is None or near > _in_common(known, item.default):
            chosen[configuration[role]] = configuration
    return tuple(chosen.values())


def _in_common(one: Configuration, other: Configuration) -> int:
    """Tunables that have the same value in both."""
    return len(set(one.items()) & set(other.items()))


def compile_ahead(wanted: list[Job], ready: "mp.Queue[Job]") -> None:
    """Compile the jobs in order, and tell the GPUs."""
    catalog = Catalog.load()
    device = WorkerDevice("cuda:0")
    for job in wanted:
        begun = time.monotonic()
        prepare_compiled([_pair(catalog, text) for text in job.workloads], device)
        print(f"compiled {job.name} in {time.monotonic() - begun:.1f} s", flush=True)
        ready.put(job)


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
        space = record(job, catalog, device, meter if job.energy else None, until)
        write(out / job.name, [space])
        of = space.provenance["size"]
        spent_s = time.monotonic() - begun
        print(f"cuda:{gpu}: {job.name}: {len(space.trials)} of {of} trials, {spent_s:.1f} s", flush=True)


def record(
    job: Job, catalog: Catalog, device: WorkerDevice, meter: Meter | None, until: float
) -> RecordedSpace:
    """Every trial of a job, as far as the time allows."""
    prepared = prepare_compiled([_pair(catalog, text) for text in job.workloads], device)
    joint = len(prepared) > 1
    lists = [block_sizes(i) if joint else tuple(c.configuration for c in i.candidates) for i in prepared]
    trials = [Trial(chosen) for chosen in itertools.product(*lists)]
    random.Random(1).shuffle(trials)  # noqa: S311 - an order, not a secret
    checks = AnswerChecks(device, 0)
    small = all(int(dict(i.workload.sizes)["N"]) <= CHECKED_TO for i in prepared)
    window_s = ENERGY_S if job.energy else TIME_S
    windows = WindowRunner(device, meter, SettingLock(None))
    measured: dict[Trial, Measurement] = {}
    for trial in trials:
        if time.time() > until:
            break
        plans = [i.plans[c] for i, c in zip(prepared, trial.configurations, strict=True)]
        wrong = _wrong(checks, plans) if small else None
        measured[trial] = wrong or windows.run(plans, window_s)
    if not small:
        check_fastest(prepared[0], measured, checks)
    return recorded_space(
        prepared,
        device.identity,
        device.limits,
        {trial: shortened(measurement) for trial, measurement in measured.items()},
        "" if meter is None else meter.info.name,
        {**provenance(), "window_s": window_s, "size": len(trials)},
    )


def _wrong(checks: AnswerChecks, plans: Sequence[Any]) -> Measurement | None:
    """The measurement of a trial one of whose answers is wrong; None where all are right."""
    checks.make(checks.missing(plans))
    found = checks.of(plans)
    if all(check.status is Status.OK for check in found):
        return None
    return Measurement(tuple(WorkloadResult(check.status, detail=check.detail) for check in found))


def check_fastest(item: PreparedWorkload, measured: dict[Trial, Measurement], checks: AnswerChecks) -> None:
    """Check the fastest trials of a single workload, and flag all others as unchecked."""
    order = sorted((t for t, m in measured.items() if m.ok), key=lambda t: measured[t].makespan_s or 0.0)
    for trial in order[:FASTEST]:
        plan = item.plans[trial.configurations[0]]
        checks.make([plan])
        (check,) = checks.of([plan])
        if check.status is not Status.OK:
            measured[trial] = Measurement((WorkloadResult(check.status, detail=check.detail),))
    for trial in order[FASTEST:]:
        measured[trial] = replace(measured[trial], flags=(*measured[trial].flags, UNCHECKED))


def shortened(measurement: Measurement) -> Measurement:
    """The measurement with the digits that a window knows: the archive stays small."""
    energy = measurement.energy
    if energy is not None:
        energy = replace(
            energy,
            joules=digits(energy.joules),
            watts=digits(energy.watts),
            uncertainty_j=digits(energy.uncertainty_j, DIGITS_OF_SPREADS),
        )
    return replace(
        measurement,
        results=tuple(
            replace(
                result,
                time_s=None if result.time_s is None else digits(result.time_s),
                spread_s=digits(result.spread_s, DIGITS_OF_SPREADS),
            )
            for result in measurement.results
        ),
        makespan_s=None if measurement.makespan_s is None else digits(measurement.makespan_s),
        makespan_spread_s=digits(measurement.makespan_spread_s, DIGITS_OF_SPREADS),
        makespan_uncertainty_s=digits(measurement.makespan_uncertainty_s, DIGITS_OF_SPREADS),
        energy=energy,
        window_s=digits(measurement.window_s, DIGITS_OF_SPENT),
        energy_total_j=digits(measurement.energy_total_j, DIGITS_OF_SPENT),
    )


def digits(value: float, count: int = DIGITS) -> float:
    """A number with so many significant digits."""
    return float(f"{value:.{count}g}")


def merge(folder: Path, archive: Path) -> None:
    """Add the complete spaces of a folder to an archive; a space that is there is replaced."""
    spaces = {space.names: space for space in read(archive)} if archive.exists() else {}
    for path in sorted(folder.glob("*.zip")):
        for space in read(path):
            if not complete(space):
                print(f"{path.name}: left out, {len(space.trials)} of {space.provenance['size']} trials")
                continue
            spaces[space.names] = space
            print(f"{path.name}: {len(space.trials)} trials")
    write(archive, [spaces[names] for names in sorted(spaces, key=_order)])


def complete(space: RecordedSpace) -> bool:
    """True when the time sufficed for all trials."""
    return len(space.trials) >= space.provenance["size"]


def _order(names: tuple[str, ...]) -> tuple[int, int, int]:
    """Single workloads first, by kernel and size."""
    kernel, _, size = names[0].partition(":N=")
    return len(names), ORDER.index(kernel), int(size)


def _pair(catalog: Catalog, text: str) -> tuple[Any, Any]:
    workload = catalog.workload(text)
    return catalog.kernel(workload.kernel), workload


def wanted_jobs(only: Sequence[str], done: set[tuple[str, ...]]) -> list[Job]:
    """Jobs whose names begin with one of the prefixes and that need not be skipped."""
    return [
        job
        for job in jobs()
        if job.workloads not in done and any("+".join(job.workloads).startswith(p) for p in only)
    ]


def main() -> None:
    """Record with all GPUs until everything is measured or the time is over, or merge what was recorded."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="folder of a file per space")
    parser.add_argument("--into", type=Path, help="merge the files of --out into this archive, and end")
    parser.add_argument("--gpus", type=int, default=1)
    parser.add_argument("--limit", type=float, default=3600.0, help="seconds")
    parser.add_argument("--skip", type=Path, help="an archive whose spaces need not be made again")
    parser.add_argument("--only", nargs="*", default=[""], help="prefixes of workloads")
    options = parser.parse_args()
    if options.into is not None:
        merge(options.out, options.into)
        return
    options.out.mkdir(parents=True, exist_ok=True)
    done = set(RecordingFile(options.skip).names) if options.skip else set()
    done |= {s.names for path in options.out.glob("*.zip") for s in read(path) if complete(s)}
    wanted = wanted_jobs(options.only, done)
    until = time.time() + options.limit
    context = mp.get_context("spawn")
    ready: mp.Queue[Job] = context.Queue()
    workers = [
        context.Process(target=measure, args=(gpu, ready, options.out, until)) for gpu in range(options.gpus)
    ]
    for worker in workers:
        worker.start()
    compiling = context.Process(target=compile_ahead, args=(wanted, ready))
    compiling.start()
    compiling.join(max(0.0, until - time.time()))
    compiling.terminate()
    for _ in workers:
        ready.put(Job((), False))
    for worker in workers:
        worker.join()


if __name__ == "__main__":
    main()
