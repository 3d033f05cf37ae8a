"""What the distance over common tunables gains in searches of spaces whose tunables have conditions.

The recorded spaces of fft-large have forms, and tunables of some forms only, by the conditions of its kernel
file. The recording is older: where a form lacks a tunable, it has a neutral value, or another tunable's.
Searches begin with the analytical answer, or with the default where limits of the GPU are not told; they are
played by how configurations are encoded:

- common: a tunable that a form lacks has no value, equally far from all values, so that only common tunables
  are compared (what searches do with kernel files whose tunables have conditions);
- neutral: it has the value of the recording, at its rank (a plain distance);
- one more value: no value is a further rank behind all others;
- one less: no value is a further rank before all others;
- lifted: no value is at the middle of the ranks, half apart from them in a dimension of its own.

    python benchmarks/conditional_tunables.py --jobs 2 --out benchmarks/results/conditional-tunables.json
    python benchmarks/conditional_tunables.py --show benchmarks/results/conditional-tunables.json
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance
from search_plays import noise
from search_spaces import OBJECTIVE, Game, games_of
from tuner.policies.surrogate import features

from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model import registry
from tuner.model.plan import Configuration
from tuner.recordings.values import RecordedSpace, search_of
from tuner.studies.comparison import play

AFTER = (10, 20, 40)
CLOSE = 0.98
SEEDS = 21
FORM = "form"
STARTS = ("analytical", "default")
COMMON = features._with_none  # noqa: SLF001 - the part that is judged


def main() -> None:
    """Play, write the JSON, print the table; or print one that was written."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--out", type=Path, help="JSON to write")
    parser.add_argument("--seeds", type=int, default=SEEDS, help="searches of each kind (%(default)s)")
    parser.add_argument("--jobs", type=int, default=2, help="processes (%(default)s)")
    parser.add_argument("--show", type=Path, metavar="FILE.json", help="print a result; no play")
    options = parser.parse_args()
    if options.show is not None:
        show(json.loads(options.show.read_text()))
        return
    if options.seeds < 1 or options.jobs < 1:
        parser.error("--seeds and --jobs must be above zero")
    os.environ.update(OMP_NUM_THREADS="1", OPENBLAS_NUM_THREADS="1")
    with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
        rows = pool.map(partial(row, seeds=options.seeds), range(len(games())), chunksize=1)
    document = {"provenance": provenance(), "seeds": options.seeds, "after": AFTER, "rows": rows}
    document["summary"] = {
        start: {name: summary(rows, start, name) for name in ENCODINGS} for start in STARTS
    }
    if options.out is not None:
        options.out.write_text(json.dumps(document, indent=1) + "\n")
    show(document)


@lru_cache(maxsize=1)
def games() -> list[Game]:
    """The recorded spaces of fft-large."""
    return [game for game in games_of("h200") if game.name.startswith("fft-large")]


def row(place: int, seeds: int) -> dict[str, Any]:
    """All searches of a space."""
    game = games()[place]
    conditional = without_neutral(game.space)
    searches: dict[str, Any] = {start: {} for start in STARTS}
    for start, name in itertools.product(STARTS, ENCODINGS):
        features._with_none = partial(with_none, name)  # noqa: SLF001
        space = game.space if name == "neutral" else conditional
        curves = [efficiencies(space, game.optimum_s, start, seed) for seed in range(seeds)]
        searches[start][name] = {
            "percent": [[round(100 * curve[count - 1], 3) for count in AFTER] for curve in curves],
            "to_98_percent": [
                next((i + 1 for i, share in enumerate(curve) if share >= CLOSE), None) for curve in curves
            ],
        }
    features._with_none = COMMON  # noqa: SLF001
    (workload,) = conditional.workloads
    return {
        "space": game.name,
        "configurations": len(workload.candidates),
        "forms": sorted({str(one.configuration[FORM]) for one in workload.candidates}),
        "searches": searches,
    }


def without_neutral(space: RecordedSpace) -> RecordedSpace:
    """A space whose configurations lack the tunables that the kernel file says their form lacks.

    Raises:
        SystemExit: two configurations would be the same.
    """
    (workload,) = space.workloads
    catalog = Catalog.load(search_path=(kernels_root(),))
    kernel = catalog.kernel(workload.kernel)
    has: dict[Any, set[str]] = {}
    for configuration in kernel.space(catalog.workloads([workload.name])[0]):
        has.setdefault(configuration[FORM], set()).update(configuration)

    def shorter(one: Configuration) -> Configuration:
        return Configuration([(name, value) for name, value in one.items() if name in has[one[FORM]]])

    candidates = tuple(replace(one, configuration=shorter(one.configuration)) for one in workload.candidates)
    default = shorter(workload.default)
    trials = {
        replace(trial, configurations=(shorter(trial.configurations[0]),)): measurement
        for trial, measurement in space.trials.items()
    }
    if len(trials) < len(space.trials):
        raise SystemExit(f"{workload.name}: two configurations are the same without what their forms lack")
    return replace(
        space, workloads=(replace(workload, candidates=candidates, default=default),), trials=trials
    )


def with_none(name: str, part: features.Floats) -> features.Floats:
    """Features of values and, behind them, of no value; of texts and permutations always the present ones."""
    return COMMON(part) if part.shape[1] > 1 else ENCODINGS[name](part)


def one_more(part: features.Floats) -> features.Floats:
    """Features of values and, behind them, of no value: one step beyond the last."""
    step = 1.0 / max(1, len(part) - 1)
    return np.vstack([part, part.max(axis=0) + step]) / (1.0 + step)


def one_less(part: features.Floats) -> features.Floats:
    """The same one step before the first."""
    step = 1.0 / max(1, len(part) - 1)
    return (np.vstack([part, part.min(axis=0) - step]) + step) / (1.0 + step)


def lifted(part: features.Floats) -> features.Floats:
    """The same in the middle, and half apart in another dimension."""
    apart = np.append(np.zeros(len(part)), 0.5)
    return np.column_stack([np.append(part[:, 0], 0.5), apart])


ENCODINGS: dict[str, Callable[[features.Floats], features.Floats]] = {
    "common": COMMON,
    "neutral": COMMON,
    "one more value": one_more,
    "one less": one_less,
    "lifted": lifted,
}


def efficiencies(space: RecordedSpace, optimum_s: float, start: str, seed: int) -> list[float]:
    """Shares of the optimum after every evaluation of a search."""
    search = search_of(space, OBJECTIVE.cost, seed=seed, noise=noise)
    search = replace(search, limits=None) if start == "default" else search
    policy = partial(registry.load("policy", "bayesian"), patience=math.inf)
    costs_s = [OBJECTIVE.cost(one) for _, one in play(policy, search, space.look, max(AFTER))]
    costs_s += [math.inf] * (max(AFTER) - len(costs_s))
    return [optimum_s / cost_s for cost_s in np.minimum.accumulate(costs_s).tolist()]


def summary(rows: Sequence[Mapping[str, Any]], start: str, name: str) -> dict[str, Any]:
    """Means over spaces and seeds; and by how much an encoding leads the neutral one, space by space."""
    found = [one["searches"][start][name] for one in rows]
    plain = [one["searches"][start]["neutral"] for one in rows]
    means = [[statistics.fmean(c[i] for c in one["percent"]) for i in range(len(AFTER))] for one in found]
    others = [[statistics.fmean(c[i] for c in one["percent"]) for i in range(len(AFTER))] for one in plain]
    tenths = [
        float(np.quantile([c[i] for one in found for c in one["percent"]], 0.1)) for i in range(len(AFTER))
    ]
    leads = np.array(means) - np.array(others)
    most = max(AFTER) + 1
    reached = [most if count is None else count for one in found for count in one["to_98_percent"]]
    return {
        "mean_percent": [round(float(value), 2) for value in np.mean(means, axis=0)],
        "worst_tenth_percent": [round(value, 2) for value in tenths],
        "lead_points": [round(float(value), 2) for value in leads.mean(axis=0)],
        "lead_standard_error": [
            round(float(value), 2) for value in leads.std(axis=0, ddof=1) / math.sqrt(len(rows))
        ],
        "median_to_98_percent": statistics.median(reached),
    }


def show(document: Mapping[str, Any]) -> None:
    """Print the tables as Markdown."""
    counts = "/".join(str(count) for count in document["after"])
    heads = ("start", "no value is", f"mean after {counts}, %", "worst tenth, %", "against neutral, points")
    print(f"| {' | '.join(heads)} | to 98 %, median |")
    print("| --- " * (len(heads) + 1) + "|")
    for start, name in itertools.product(STARTS, ENCODINGS):
        one = document["summary"][start][name]
        leads = zip(one["lead_points"], one["lead_standard_error"], strict=True)
        cells = [
            "/".join(f"{value:.1f}" for value in one["mean_percent"]),
            "/".join(f"{value:.1f}" for value in one["worst_tenth_percent"]),
            ", ".join(f"{lead:+.2f} ± {error:.2f}" for lead, error in leads),
            f"{one['median_to_98_percent']:g}",
        ]
        print(f"| {start} | {name} | {' | '.join(cells)} |")


if __name__ == "__main__":
    main()
