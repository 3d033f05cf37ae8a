"""What runs on another kind of GPU are worth: evaluations to 95 and 98 % of the best, with and without them.

Spaces of one kernel that were recorded on several GPUs are searched one after another, with the runs of one
other GPU known, and without. Known is what a search there leaves behind (60 evaluations of the policy), or
all that was recorded. "Carried over" is the speed of the other GPU's best configuration on this one, as a
share of the best.

Recordings of two kinds: of this program (`tuner db export` on each, the same workload), or public ones in the
form of Kernel Tuner. Names that end in `_GPU` belong together.

    python benchmarks/knowledge_across_kinds.py FILE... --out benchmarks/results/knowledge-across-kinds.json
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

from knowledge import cost, noise
from provenance import provenance

from tuner.model import registry
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace, search_of
from tuner.space.search_view import PriorRun, Search

GOALS = (0.95, 0.98)  # of the best speed of a space
LEFT = 60  # evaluations of the search that leaves its runs behind
BUDGET = 150  # evaluations; a search that does not get there counts as this
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


def main() -> None:
    """Search, print the table, write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("files", nargs="+", type=Path)
    parser.add_argument("--out", type=Path)
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--policies", nargs="*", default=list(POLICIES))
    options = parser.parse_args()
    rows = list(measured(kinds_of(options.files), options.policies, options.seeds))
    protocol = {"goals": GOALS, "left": LEFT, "budget": BUDGET, "seeds": options.seeds}
    if options.out:
        document = {"provenance": provenance(), "protocol": protocol, "rows": rows}
        options.out.write_text(json.dumps(document, indent=1) + "\n")


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


def measured(kernels: dict[str, list[Kind]], policies: Sequence[str], seeds: int) -> Iterator[dict[str, Any]]:
    """A row per kernel, pair of kinds, policy and knowledge; printed as it comes."""
    print(f"{'kernel':16s}{'GPU':>8s}{'known':>8s}{'carried':>9s}  policy    of it         95 %  98 %")
    for kernel, kinds in kernels.items():
        for here, other in itertools.permutations(kinds, 2):
            if here.gpu == other.gpu:
                continue
            carried = here.least / cost(here.space.look(other.best))
            for policy, known in itertools.product(policies, KNOWN):
                counts = [evaluations(here, other, policy, known, seed) for seed in range(seeds)]
                medians = [statistics.median(at) for at in zip(*counts, strict=True)]
                names = "".join(f"{kind.gpu.removeprefix('NVIDIA '):>8.8s}" for kind in (here, other))
                print(
                    f"{kernel:16.16s}{names}{carried:9.3f}  {policy:10s}{known:10s}"
                    f"{medians[0]:6g}{medians[1]:6g}",
                    flush=True,
                )
                row = {"kernel": kernel, "gpu": here.gpu, "other": other.gpu, "carried_over": carried}
                yield row | {"policy": policy, "known": known, "evaluations": counts, "medians": medians}


def evaluations(here: Kind, other: Kind, policy: str, known: str, seed: int) -> list[int]:
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
