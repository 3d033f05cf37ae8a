"""What knowledge of other sizes or GPUs is worth: evaluations to 95 or 98 % of the optimum, with and without.

Every recorded size of a kernel is searched with the runs of its four nearest other sizes known, and without.
Known of each is what a search leaves behind, a random sample, or all that was recorded. "Seeded" searches
start from the analytical answer; the others show what knowledge alone does.

With files, spaces of one kernel that were recorded on several GPUs are searched one after another, with the
runs of one other GPU known, and without. Known is what a search there leaves behind (60 evaluations of the
policy), or all that was recorded. "Carried over" is the speed of the other GPU's best configuration on this
one, as a share of the best. Recordings are of this program (`tuner db export` on each, the same workload), or
public ones in the form of Kernel Tuner. Names that end in `_GPU` belong together.

    python benchmarks/knowledge.py --out benchmarks/results/knowledge.json [--seeds 10]
    python benchmarks/knowledge.py FILE... --out benchmarks/results/knowledge-across-kinds.json
"""

import argparse
import itertools
import json
import math
import statistics
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache, cached_property
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

from tuner.model import registry
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace, search_of
from tuner.space.search_view import PriorRun, Search

KERNELS = ("fft-large", "fft", "scan-lf", "tridiag-wm")
GOAL = 0.98  # of the optimum
OTHERS = 4  # nearest sizes that are known
SAMPLE = 60  # configurations known of each, drawn at random, where not all are
BUDGET = 150  # evaluations; a search that does not get there counts as this


def main() -> None:
    """Search, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="*", type=Path, help="recordings of several kinds of GPUs")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--recording", default="h200")
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--kernels", nargs="*", default=list(KERNELS))
    parser.add_argument("--policies", nargs="*", default=list(POLICIES), help="with files")
    options = parser.parse_args()
    if options.files:
        rows = list(measured_kinds(kinds_of(options.files), options.policies, options.seeds))
        protocol = {"goals": GOALS, "left": LEFT, "budget": BUDGET, "seeds": options.seeds}
    else:
        rows = list(measured(options))
        protocol = {
            "goal": GOAL,
            "others": OTHERS,
            "sample": SAMPLE,
            "budget": BUDGET,
            "seeds": options.seeds,
            "recording": options.recording,
        }
    document = {"provenance": provenance(), "protocol": protocol, "rows": rows}
    options.out.write_text(json.dumps(document, indent=1) + "\n")


def measured(options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """A row per kernel, start and knowledge; printed as it comes."""
    recording = open_recording(options.recording)
    print(f"{'kernel':12s}{'start':>12s}{'known':>10s}{'evaluations':>13s}  of each size")
    for kernel in options.kernels:
        spaces = [
            recording.space(n) for n in recording.names if len(n) == 1 and n[0].startswith(f"{kernel}:")
        ]
        for seeded in (True, False):
            for known in ("nothing", "sample", "all"):
                row = row_of(kernel, spaces, options.seeds, seeded=seeded, known=known)
                start = "analytical" if seeded else "default"
                print(
                    f"{kernel:12s}{start:>12s}{known:>10s}{row['median']:13g}  {row['medians']}", flush=True
                )
                yield row


def row_of(
    kernel: str, spaces: Sequence[RecordedSpace], seeds: int, *, seeded: bool, known: str
) -> dict[str, Any]:
    """Evaluations to the goal of every size and seed."""
    needed = {
        space.names[0]: [
            evaluations(space, [s for s in spaces if s is not space], seed, seeded=seeded, known=known)
            for seed in range(seeds)
        ]
        for space in spaces
    }
    medians = {name: statistics.median(counts) for name, counts in needed.items()}
    return {
        "kernel": kernel,
        "seeded": seeded,
        "known": known,
        "evaluations": needed,
        "medians": list(medians.values()),
        "median": statistics.median(count for counts in needed.values() for count in counts),
    }


def evaluations(
    space: RecordedSpace, others: Sequence[RecordedSpace], seed: int, *, seeded: bool, known: str
) -> int:
    """Evaluations until the goal is reached."""
    search = search_of(space, cost, seed=seed, noise=noise)
    if not seeded:
        search = replace(search, limits=None)  # no limits, no analytical answer
    if known != "nothing":
        search = replace(search, prior_runs=tuple(knowledge(search, others, seed, known)))
    goal = min(map(cost, space.trials.values())) / GOAL
    generator = registry.load("policy", "bayesian")(search, patience=math.inf)
    batch, count = next(generator), 0
    while True:
        measurements = [space.look(trial) for trial in batch]
        for measurement in measurements:
            count += 1
            if count >= BUDGET or cost(measurement) <= goal:
                return count
        batch = generator.send(measurements)


def knowledge(search: Search, others: Sequence[RecordedSpace], seed: int, amount: str) -> Iterator[PriorRun]:
    """Runs of the nearest other sizes."""
    size = float(search.sizes[0]["N"])
    apart = {id(s): abs(math.log2(float(s.workloads[0].sizes["N"]) / size)) for s in others}
    for space in sorted(others, key=lambda s: apart[id(s)])[:OTHERS]:
        points = [(trial.configurations[0], cost(m)) for trial, m in space.trials.items()]
        if amount == "sample":
            draw = np.random.default_rng(seed)
            drawn = draw.choice(len(points), min(SAMPLE, len(points)), replace=False)
            points = [points[i] for i in drawn]
        yield PriorRun(0, space.workloads[0].sizes, space.identity.name, tuple(points))


def cost(measurement: Measurement) -> float:
    """Time of a round, in seconds."""
    return measurement.makespan_s if measurement.ok and measurement.makespan_s else math.inf


def noise(measurement: Measurement) -> float:
    """Relative standard uncertainty of that time."""
    return measurement.makespan_uncertainty_s / cost(measurement)


# --- runs on another kind of GPU -------------------------------------------------------------------

GOALS = (0.95, 0.98)  # of the best speed of a space
LEFT = 60  # evaluations_there of the search that leaves its runs behind
KNOWN = ("nothing", "a search", "all")
POLICIES = ("bayesian", "auto")


@dataclass(frozen=True, eq=False)
class Kind:
    """A kernel as it was recorded on one kind of GPU.

    Attributes:
        kernel: name that spaces to compare have in common.
        gpu: name of the kind.
        space: what was recorded.
    """

    kernel: str
    gpu: str
    space: RecordedSpace

    @cached_property
    def best(self) -> Trial:
        """The fastest trial."""
        return min(self.space.trials, key=lambda trial: cost(self.space.trials[trial]))

    @cached_property
    def least(self) -> float:
        """Its cost, in seconds."""
        return cost(self.space.trials[self.best])


def kinds_of(files: Sequence[Path]) -> dict[str, list[Kind]]:
    """Kernels that were recorded on two kinds at least."""
    found: dict[str, list[Kind]] = defaultdict(list)
    for file in files:
        recording = open_recording(file)
        for names in recording.names:
            if len(names) == 1:
                space = recording.space(names)
                kernel, gpu = names[0], space.identity.name
                if ":" not in kernel:  # of Kernel Tuner, whose names have the GPU at their end
                    kernel, _, gpu = file.stem.rpartition("_")
                found[kernel].append(Kind(kernel, gpu, space))
    return {kernel: kinds for kernel, kinds in found.items() if len({kind.gpu for kind in kinds}) > 1}


def measured_kinds(
    kernels: dict[str, list[Kind]], policies: Sequence[str], seeds: int
) -> Iterator[dict[str, Any]]:
    """A row per kernel, pair of kinds, policy and knowledge; printed as it comes."""
    print(f"{'kernel':16s}{'GPU':>8s}{'known':>8s}{'carried':>9s}  policy    of it         95 %  98 %")
    for kernel, kinds in kernels.items():
        for here, other in itertools.permutations(kinds, 2):
            if here.gpu == other.gpu:
                continue
            carried = here.least / cost(here.space.look(other.best))
            for policy, known in itertools.product(policies, KNOWN):
                counts = [evaluations_there(here, other, policy, known, seed) for seed in range(seeds)]
                medians = [statistics.median(at) for at in zip(*counts, strict=True)]
                names = "".join(f"{kind.gpu.removeprefix('NVIDIA '):>8.8s}" for kind in (here, other))
                print(
                    f"{kernel:16.16s}{names}{carried:9.3f}  {policy:10s}{known:10s}"
                    f"{medians[0]:6g}{medians[1]:6g}",
                    flush=True,
                )
                row = {"kernel": kernel, "gpu": here.gpu, "other": other.gpu, "carried_over": carried}
                yield row | {
                    "policy": policy,
                    "known": known,
                    "evaluations_there": counts,
                    "medians": medians,
                }


def evaluations_there(here: Kind, other: Kind, policy: str, known: str, seed: int) -> list[int]:
    """Evaluations until each goal is reached."""
    search = search_of(here.space, cost, seed=seed, noise=noise)
    if known != "nothing":
        search = replace(search, prior_runs=(prior_run(other, policy, known, seed),))
    reached: list[int] = []
    for count, (_, measurement) in enumerate(played(policy, search, here.space, BUDGET), 1):
        while len(reached) < len(GOALS) and cost(measurement) <= here.least / GOALS[len(reached)]:
            reached.append(count)
        if len(reached) == len(GOALS):
            break
    return reached + [BUDGET] * (len(GOALS) - len(reached))


def prior_run(other: Kind, policy: str, known: str, seed: int) -> PriorRun:
    """What is known of the other kind."""
    whole = known == "all"
    trials = list(other.space.trials.items()) if whole else left_behind(other, policy, seed + 1000)
    points = tuple((trial.configurations[0], cost(measurement)) for trial, measurement in trials)
    return PriorRun(0, other.space.workloads[0].sizes, other.gpu, points)


@cache
def left_behind(kind: Kind, policy: str, seed: int) -> list[tuple[Trial, Measurement]]:
    """The trials of a search on another kind."""
    search = search_of(kind.space, cost, seed=seed, noise=noise)
    return list(played(policy, search, kind.space, LEFT))


def played(
    policy: str, search: Search, space: RecordedSpace, most: int
) -> Iterator[tuple[Trial, Measurement]]:
    """The trials of a policy with what was recorded of them, so many at most."""
    options = {"patience": math.inf} if policy in ("bayesian", "auto") else {}
    generator = registry.load("policy", policy)(search, **options)
    count = 0
    try:
        batch = next(generator)
        while True:
            measurements = [space.look(trial) for trial in batch]
            for pair in zip(batch, measurements, strict=True):
                yield pair
                count += 1
                if count >= most:
                    return
            batch = generator.send(measurements)
    except StopIteration:
        return


if __name__ == "__main__":
    main()
