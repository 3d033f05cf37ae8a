"""Play the searches of a stored result again, in a loop and with scores of its own, and compare all digits.

`search.py` plays and scores through modules that other benchmarks share. This script shares neither: it asks
a policy for trials, looks their times up, counts, and computes what a row of the JSON says. Only the reading
of spaces, and what a policy is told of one, are the project's. CPU times are left out: they do not repeat.

    python benchmarks/search_replay.py benchmarks/results/search-ends.json FOLDER_OR_FILES... [--h200]
"""

import inspect
import json
import math
import multiprocessing
import os
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from provenance import command_line

from tuner.model import registry
from tuner.model.errors import InputError, TunerError
from tuner.model.trial import Measurement, Trial
from tuner.recordings.files import open_recording
from tuner.recordings.values import RecordedSpace, search_of

ONE_THREAD = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"), "1")
ALTERED = ("--family-out", "--failing")  # results of spaces or beliefs that this script does not make
Progress = list[float]
"""The least time after every evaluation, in s; infinity while nothing has worked."""


def main() -> int:
    """Play, compare, print what differs; returns 1 where something does."""
    parser = command_line(__doc__)
    parser.add_argument("result", type=Path, help="JSON that search.py has written")
    parser.add_argument("spaces", nargs="*", type=Path, help="folders and files of its recorded spaces")
    parser.add_argument("--h200", action="store_true", help="the spaces that are shipped, too")
    options = parser.parse_args()
    try:
        os.environ.update(ONE_THREAD, PYTHONHASHSEED="0")  # read by the child when it starts
        with multiprocessing.get_context("spawn").Pool(1) as pool:
            differing = pool.apply(compared, (options.result, options.spaces, options.h200))
    except TunerError as error:
        print(f"search_replay.py: {error}", file=sys.stderr)
        return 2
    return int(differing > 0)


def compared(path: Path, files: Sequence[Path], shipped: bool) -> int:
    """How many rows of a result another search of the same seeds does not repeat."""
    document = json.loads(path.read_text())
    command = document["provenance"]["command"].split()
    if altered := [word for word in ALTERED if word in command]:
        raise InputError(f"{path}: was made with {altered[0]}, which is not replayed")
    spaces = dict(_spaces(files, shipped=shipped))
    rows = [row for row in document["rows"] if row["ours"] and row["space"] in spaces]
    if not rows:
        raise InputError(f"{path}: no row of ours is of these spaces: {', '.join(spaces) or 'none given'}")
    differing = 0
    for row in rows:
        space = spaces[row["space"]]
        plays = [
            played(space, row["search"], seed, max(row["budgets"]), ends="--ends" in command)
            for seed in range(row["seeds"])
        ]
        found = scores(space, plays, row["budgets"])
        wrong = {name: (row.get(name), value) for name, value in found.items() if row.get(name, []) != value}
        differing += bool(wrong)
        print(f"{row['space']}, {row['search']}, {row['seeds']} seeds: {wrong or 'the same'}", flush=True)
    print(f"{len(rows)} rows played again, {differing} differ")
    return differing


def _spaces(files: Sequence[Path], *, shipped: bool) -> Iterator[tuple[str, RecordedSpace]]:
    """Spaces by the name that rows have."""
    for path in (one for each in files for one in (sorted(each.iterdir()) if each.is_dir() else [each])):
        if path.suffix in (".npz", ".json", ".zip"):
            recording = open_recording(str(path))
            for names in recording.names:
                alone = path.stem.replace("_", " ")
                yield (
                    alone if len(recording.names) == 1 else f"{path.stem} {' + '.join(names)}",
                    recording.space(names),
                )
    if shipped:
        recording = open_recording("h200")
        yield from ((" + ".join(names), recording.space(names)) for names in recording.names)


def played(space: RecordedSpace, name: str, seed: int, budget: int, *, ends: bool) -> tuple[Progress, int]:
    """The progress of a search, and how many of its evaluations failed."""
    policy = registry.load("policy", name)
    patient = not ends and "patience" in inspect.signature(policy).parameters
    search = search_of(space, time_s, seed=seed, noise=relative_uncertainty)
    attempt = policy(search, patience=math.inf) if patient else policy(search)
    known: dict[Trial, Measurement] = {}
    try:
        wanted = next(attempt)
        while len(known) < budget:
            for trial in wanted:
                if trial not in known and len(known) < budget:
                    known[trial] = space.look(trial)
            if len(known) < budget:
                wanted = attempt.send([known[trial] for trial in wanted])
    except StopIteration:
        pass
    attempt.close()
    times_s = [time_s(measurement) for measurement in known.values()]
    return np.minimum.accumulate(times_s).tolist(), sum(map(math.isinf, times_s))


def time_s(measurement: Measurement) -> float:
    """What is minimised; infinity where the trial failed."""
    return measurement.makespan_s if measurement.ok and measurement.makespan_s else math.inf


def relative_uncertainty(measurement: Measurement) -> float:
    """Of the time; 0 where the trial failed."""
    found = time_s(measurement)
    return measurement.makespan_uncertainty_s / found if math.isfinite(found) else 0.0


def scores(
    space: RecordedSpace, plays: Sequence[tuple[Progress, int]], budgets: Sequence[int]
) -> dict[str, Any]:
    """What a row of the JSON says of these searches, but for CPU times and its curve."""
    optimum_s = min(map(time_s, space.trials.values()))
    progress = [found for found, _ in plays]
    shares = np.array([[optimum_s / found[min(n, len(found)) - 1] for n in budgets] for found in progress])
    reached = [[_first(found, optimum_s, level) for found in progress] for level in (0.90, 0.98)]
    middle = [sorted(counts)[(len(counts) - 1) // 2] for counts in reached]
    allowed = min(max(budgets), len(space.trials))
    spread = shares.std(axis=0, ddof=min(1, len(plays) - 1))
    return {
        "configurations": len(space.trials),
        "efficiency": [round(float(share), 4) for share in np.median(shares, axis=0)],
        "mean": [round(math.fsum(column) / len(column), 5) for column in shares.T],
        "deviation": [round(float(each), 5) for each in spread],
        "worst_tenth": [round(float(share), 5) for share in np.quantile(shares, 0.1, axis=0)],
        "failed": round(sum(failed for _, failed in plays) / sum(map(len, progress)), 5),
        "evaluations_to": [count if math.isfinite(count) else None for count in middle],
        "early": [len(found) for found in progress if len(found) < allowed],
    }


def _first(progress: Progress, optimum_s: float, level: float) -> float:
    return next((n for n, best_s in enumerate(progress, start=1) if optimum_s / best_s >= level), math.inf)


if __name__ == "__main__":
    sys.exit(main())
