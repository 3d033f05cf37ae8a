"""What beginning a search costs on a space of over a billion combinations, and what searches find there.

A made-up kernel: 14 tunables, two with conditions, one a permutation, and eight rules over up to seven.
Measured are processor time and memory until the candidates are ready (nothing is compiled or run), the time
of neighbours made on demand, and each policy on a cost that is made up, too: valleys along tunables, effects
of two together, and a tenth of the configurations failing.

    python benchmarks/large_space.py --out benchmarks/results/large-space.json
"""

import argparse
import json
import math
import multiprocessing
import os
import resource
import statistics
import tempfile
import time
import zlib
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path
from typing import Any

from provenance import provenance
from search import SETTINGS

from tuner.devices.choice import open_device
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model import registry
from tuner.model.plan import Configuration, TunableValue
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.search.candidates import PreparedWorkload, prepare
from tuner.space.large_spaces import SampledSpace
from tuner.space.search_view import Search

POLICIES = ("random", "local", "greedy", "bayesian")
EVALUATIONS = (20, 50, 100)
ASKED = 20  # configurations whose neighbours are timed
Played = tuple[list[float], float]
SOURCE = "__global__ void tiled(float* a, int n) { if (threadIdx.x < n) a[threadIdx.x] += 1; }"
FILE = """
kernel.source = "tiled.cu"
launch.grid = "ceil_div(N, block_size_x * block_size_y)"

[default]
block_size_x = 128
block_size_y = 1
tile_x = 1
tile_y = 1
tile_k = 8
unroll = 1
vector = 1
order = "i,j,k"
form = "direct"
cluster = 1
cache = "ca"
swizzle = 0

[problem]
sizes.N = [1048576]

[arguments]
a = "inout float32[N]"
n = "int32 = N"

[tunables]
block_size_x = [16, 32, 64, 128, 256, 512, 1024]
block_size_y = [1, 2, 4, 8, 16, 32]
tile_x = [1, 2, 3, 4, 5, 6, 7, 8]
tile_y = [1, 2, 3, 4, 5, 6, 7, 8]
tile_k = [4, 8, 16, 32, 64]
unroll = [1, 2, 4, 8, 16]
vector = [1, 2, 4]
order = { permutation = ["i", "j", "k"] }
form = ["direct", "staged", "async"]
stages = { values = [2, 3, 4, 5], when = "form == 'async'", otherwise = 1 }
pad = { values = [0, 1, 4, 8], when = "form != 'direct'", otherwise = 0 }
cluster = [1, 2, 4, 8]
cache = ["ca", "cg", "cs"]
swizzle = [0, 1, 2, 4, 8]

[constraints]
rules = [
    "block_size_x * block_size_y <= 1024",
    "block_size_x * block_size_y >= 32",
    "tile_x * tile_y <= 32",
    "tile_k % unroll == 0",
    "tile_x % vector == 0",
    "(block_size_x * tile_x + block_size_y * tile_y + pad) * tile_k * stages <= 24576",
    "index_of(order, 'k') == 2 or tile_k >= 16",
    "swizzle == 0 or swizzle <= block_size_y",
]
"""
BEST: Mapping[str, TunableValue] = {  # of the made-up cost
    "block_size_x": 64,
    "block_size_y": 4,
    "tile_x": 4,
    "tile_y": 3,
    "tile_k": 16,
    "unroll": 8,
    "vector": 4,
    "order": "j,i,k",
    "form": "async",
    "stages": 3,
    "pad": 4,
    "cluster": 2,
    "cache": "cg",
    "swizzle": 2,
}


def main() -> None:
    """Time the start, play the searches, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--seeds", type=int, default=5)
    parser.add_argument("--jobs", type=int, default=1, help="processes (%(default)s)")
    options = parser.parse_args()
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be above zero")
    os.environ.update(SETTINGS)  # read by the children when they start
    with tempfile.TemporaryDirectory() as folder:
        _, start = started(Path(folder))
    searches = [(policy, seed) for policy in POLICIES for seed in range(options.seeds)]
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        plays = dict(zip(searches, pool.starmap(played, searches, chunksize=1), strict=True))
    rows = {policy: searched([plays[policy, seed] for seed in range(options.seeds)]) for policy in POLICIES}
    document = {"provenance": provenance(), "start": start, "policies": rows}
    options.out.write_text(json.dumps(document, indent=1) + "\n")
    print("\n".join(f"{key:24s}{value:,}" for key, value in start.items()))
    print(
        f"\n{'policy':10s}"
        + "".join(f"{f'after {count}':>11s}" for count in EVALUATIONS)
        + "  CPU ms/evaluation"
    )
    for policy, row in rows.items():
        efficiencies = "".join(f"{row['efficiency_percent'][str(count)]:9.1f} %" for count in EVALUATIONS)
        print(f"{policy:10s}{efficiencies}{row['cpu_ms_per_evaluation']:10.1f}")


def started(folder: Path) -> tuple[PreparedWorkload, dict[str, float]]:
    """The workload made ready, and what that took: processor time, and growth of the peak memory."""
    (folder / "tiled.cu").write_text(SOURCE)
    path = folder / "kernel.toml"
    path.write_text(FILE)
    device, _ = open_device("sim:h200", 0)
    before_mib, begun_s = _peak_mib(), time.process_time()
    kernel = load_kernel_file(path)
    (workload,) = kernel.workloads()
    read_s = time.process_time()
    space = kernel.space(workload)
    drawn_s = time.process_time()
    (item,) = prepare([(kernel, workload)], device)
    ready_s = time.process_time()
    if not isinstance(space, SampledSpace) or kernel.allowed(workload, BEST) is None:
        raise SystemExit("the made-up space is listed as a whole, or lacks the best configuration")
    device.close()
    peak_mib = _peak_mib() - before_mib
    asked_s = time.process_time()
    counts = [len(space.neighbours(space[place])) for place in range(ASKED)]
    neighbours_s = (time.process_time() - asked_s) / ASKED
    return item, {
        "combinations": space.cartesian_size,
        "configurations_about": space.size,
        "listed": len(space),
        "read_cpu_s": round(read_s - begun_s, 3),
        "drawn_cpu_s": round(drawn_s - read_s, 3),
        "ready_cpu_s": round(ready_s - begun_s, 3),
        "peak_growth_mib": round(peak_mib, 1),
        "neighbours": statistics.median(counts),
        "neighbours_cpu_ms": round(1e3 * neighbours_s, 2),
    }


def _peak_mib() -> float:
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024


@lru_cache(maxsize=1)
def _ready() -> PreparedWorkload:
    with tempfile.TemporaryDirectory() as folder:
        return started(Path(folder))[0]


def searched(plays: Sequence[Played]) -> dict[str, Any]:
    """Efficiency of one policy, its mean over seeds: cost of the best by the lowest found, in per cent."""
    reached = {
        str(count): round(100 * statistics.mean(curve[min(count, len(curve)) - 1] for curve, _ in plays), 2)
        for count in EVALUATIONS
    }
    cpu_ms = [1e3 * cpu_s / len(curve) for curve, cpu_s in plays]
    evaluations = statistics.median(len(curve) for curve, _ in plays)
    return {
        "efficiency_percent": reached,
        "evaluations": evaluations,
        "cpu_ms_per_evaluation": round(statistics.mean(cpu_ms), 2),
    }


def played(policy: str, seed: int) -> Played:
    """The share of the best after every evaluation, and the processor time of the policy in seconds."""
    item = _ready()
    large = None if item.source is None else item.source.as_told()
    search = Search(
        workloads=("tiled",),
        candidates=(item.candidates,),
        defaults=(item.default,),
        clocks_mhz=(),
        cost=lambda one: math.inf if one.makespan_s is None else one.makespan_s,
        seed=seed,
        tunables=(item.space.tunables,),
        large_spaces=(large,),
    )
    options = {"patience": math.inf} if policy == "bayesian" else {}
    curve: list[float] = []
    begun_s = time.process_time()
    generator = registry.load("policy", policy)(replace(search), **options)
    batch = next(generator)
    while len(curve) < max(EVALUATIONS):
        measured = [measurement(trial) for trial in batch]
        for one in measured:
            share = 0.0 if one.makespan_s is None else 1.0 / one.makespan_s
            curve.append(max(share, curve[-1] if curve else 0.0))
        try:
            batch = generator.send(measured)
        except StopIteration:
            break
    return curve, time.process_time() - begun_s


def measurement(trial: Trial) -> Measurement:
    """What a trial of the made-up kernel takes, 1 s at best; a tenth fails."""
    (configuration,) = trial.configurations
    fails = zlib.crc32(str(configuration).encode()) % 10 == 0
    if fails and dict(configuration) != dict(BEST):
        return Measurement((WorkloadResult(Status.LAUNCH_ERROR),))
    time_s = made_up_s(configuration)
    return Measurement((WorkloadResult(Status.OK, time_s),), time_s)


def made_up_s(configuration: Configuration) -> float:
    """A cost with its least, 1 s, at ``BEST``."""
    away = {name: _away(configuration.get(name), best) for name, best in BEST.items()}
    cost = 1.0 + 0.04 * sum(step**2 for step in away.values())
    return (
        cost + 0.05 * abs(away["block_size_x"] + away["tile_x"]) + 0.05 * abs(away["tile_k"] - away["unroll"])
    )


def _away(value: TunableValue | None, best: TunableValue) -> float:
    """Doublings between numbers; 1 for another text, or none."""
    if isinstance(value, str) or value is None or isinstance(best, str):
        return float(value != best)
    return math.log2((1 + value) / (1 + best))


if __name__ == "__main__":
    main()
