"""Measures the kernels of ``examples`` on the GPU of this machine: times of configurations in random order.

What is left of the time is shared evenly between the kernels that are left; where a kernel's space is larger
than its share, its recording holds those that were measured, a random part of it. Compiling goes ahead on all
cores. The answers of the fastest are checked. ``benchmarks/spaces/users-h200.zip`` was made of earlier
examples, in other spaces, with softmax and without vector addition; no sources are needed to read it.

    python benchmarks/record_examples.py --out users-h100.zip [--limit 150] [--only NAME ...]
"""

import argparse
import multiprocessing as mp
import random
import time
from collections.abc import Sequence
from pathlib import Path

from provenance import provenance
from record_spaces import FASTEST, check_fastest, shortened

from tuner.devices.worker import WorkerDevice
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.measurer import AnswerChecks
from tuner.measurement.settle import SettingLock
from tuner.measurement.window import WindowRunner
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import read, write
from tuner.recordings.values import RecordedSpace
from tuner.search.candidates import PreparedWorkload
from tuner.search.compilation import prepare_compiled
from tuner.search.replaying import recorded_space

FOLDER = Path(__file__).parents[1] / "examples"
WINDOW_S = 0.02
CHECK_S = 0.06  # what a check of an answer takes, about: so much of a share is kept for them


def names(only: Sequence[str]) -> list[str]:
    """Kernels of the folder, or those of them that are wanted."""
    found = sorted(path.parent.name for path in FOLDER.glob("*/kernel.toml"))
    return [name for name in found if not only or name in only]


def prepared(name: str, device: WorkerDevice) -> PreparedWorkload:
    """A workload of a kernel, compiled; the occupancy of a configuration does not count."""
    catalog = Catalog.load([FOLDER / name / "kernel.toml"])
    kernel = catalog.kernel(name)
    (item,) = prepare_compiled([(kernel, kernel.workloads()[0])], device, 0.0)
    return item


def compile_ahead(wanted: Sequence[str], ready: "mp.Queue[str]") -> None:
    """Compile the kernels in order into the cache, and say which are done."""
    device = WorkerDevice("cuda:0")
    for name in wanted:
        begun = time.monotonic()
        prepared(name, device)
        print(f"compiled {name} in {time.monotonic() - begun:.1f} s", flush=True)
        ready.put(name)
    device.close()


def record(name: str, device: WorkerDevice, until: float) -> RecordedSpace:
    """Every configuration of a kernel, as far as the time allows."""
    item = prepared(name, device)
    trials = [Trial((candidate.configuration,)) for candidate in item.candidates]
    random.Random(1).shuffle(trials)  # noqa: S311 - an order, not a secret
    windows = WindowRunner(device, None, SettingLock(None))
    measured: dict[Trial, Measurement] = {}
    for trial in trials:
        if time.monotonic() > until - FASTEST * CHECK_S:
            break
        measured[trial] = windows.run([item.plans[trial.configurations[0]]], WINDOW_S)
    check_fastest(item, measured, AnswerChecks(device, 0))
    return recorded_space(
        [item],
        device.identity,
        device.limits,
        {trial: shortened(measurement) for trial, measurement in measured.items()},
        "",
        {**provenance(), "window_s": WINDOW_S, "size": len(trials)},
    )


def main() -> None:
    """Record what fits into the time, and write it after every kernel."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True, help="archive to write, or to add to")
    parser.add_argument("--limit", type=float, default=150.0, help="seconds (%(default)s)")
    parser.add_argument("--only", nargs="*", default=[], help="names of kernels")
    options = parser.parse_args()
    end = time.monotonic() + options.limit
    spaces = {space.names: space for space in read(options.out)} if options.out.exists() else {}
    wanted = names(options.only)
    context = mp.get_context("spawn")
    ready: mp.Queue[str] = context.Queue()
    compiling = context.Process(target=compile_ahead, args=(wanted, ready))
    compiling.start()
    device = WorkerDevice("cuda:0")
    for place in range(len(wanted)):
        name = ready.get(timeout=max(1.0, end - time.monotonic()))
        begun = time.monotonic()
        space = record(name, device, begun + (end - begun) / (len(wanted) - place))
        spaces[space.names] = space
        write(options.out, spaces.values())
        costs = sorted(m.makespan_s for m in space.trials.values() if m.ok and m.makespan_s)
        print(
            f"{space.names[0]}: {len(space.trials)} of {space.provenance['size']}, {len(costs)} valid,"
            f" {time.monotonic() - begun:.1f} s; fastest {1e3 * costs[0]:.4f} ms,"
            f" median {1e3 * costs[len(costs) // 2]:.4f} ms, slowest {1e3 * costs[-1]:.4f} ms",
            flush=True,
        )
    compiling.join()
    device.close()


if __name__ == "__main__":
    main()
