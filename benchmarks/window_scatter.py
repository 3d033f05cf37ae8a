"""How often the stated joules of an answer cover the mean over minutes, by how a GPU wanders: modelled.

Runs of four contenders, measured in the search and in three paired repeats soon after one another, on GPUs
whose power differs from minute to minute and from window to window by a given standard deviation. The mean
over all minutes is the truth. Beside the stated interval that of the repeats alone, and those of the ratio of
two contenders, whose power over minutes has a part of its own.

    python benchmarks/window_scatter.py --out benchmarks/results/window-scatter.json
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
from provenance import provenance

from tuner.measurement.paired import PairedRepeats, join, window_scatter
from tuner.model.objective import COVERAGE, Objective
from tuner.model.plan import Configuration
from tuner.model.trial import Energy, Measurement, Status, Trial, WorkloadResult, stated

TRIALS = [Trial((Configuration({"i": number}),)) for number in range(4)]
CASES = {  # standard deviations in percent: over minutes common to all, a trial's own, from window to window
    "as an H200 did": (0.35, 0.10, 0.23),
    "calm": (0.05, 0.02, 0.05),
    "minutes only": (0.40, 0.00, 0.00),
    "windows only": (0.00, 0.00, 0.40),
    "trials apart": (0.20, 0.25, 0.20),
    "restless": (0.60, 0.20, 0.40),
}
SIGMA = 2e-4  # of a window: that of a good counter


def measured(joules: float, ended_s: float) -> Measurement:
    """A window of a good counter."""
    energy = Energy(joules, SIGMA * joules, joules, "modelled", "gpu", 12.0)
    return Measurement((WorkloadResult(Status.OK, 1.0),), 1.0, energy=energy, ended_s=ended_s)


def coverage(minutes: float, own: float, windows: float, runs: int, apart_s: float) -> dict[str, float]:
    """Shares of runs whose intervals hold the truth, which is 1 of joules and of ratios."""
    generator = np.random.default_rng(17)
    held = dict.fromkeys(("stated", "repeats_alone", "ratio", "ratio_turns"), 0)
    half = []
    for _ in range(runs):
        slow = generator.normal(0.0, minutes / 100, (2, 1)) + generator.normal(0.0, own / 100, (2, 4))
        joules = np.exp(slow[[0, 1, 1, 1]] + generator.normal(0.0, windows / 100, (4, 4)))
        columns = [
            {trial: measured(float(j), i * apart_s) for trial, j in zip(TRIALS, row, strict=True)}
            for i, row in enumerate(joules)
        ]
        paired = PairedRepeats(tuple(columns[1:]))
        joined = join([column[TRIALS[0]] for column in columns[1:]])
        told = stated(joined, window_scatter(columns[0], paired.repeats))
        ratio = paired.ratio(TRIALS[0], TRIALS[1], Objective("energy"))
        if joined.energy is None or told.energy is None or ratio is None:
            raise RuntimeError("a window without joules")
        off = abs(joined.energy.joules - 1.0)
        held["stated"] += off <= COVERAGE * told.energy.uncertainty_j
        held["repeats_alone"] += off <= COVERAGE * joined.energy.uncertainty_j
        held["ratio"] += abs(ratio.value - 1.0) <= ratio.interval
        held["ratio_turns"] += abs(ratio.value - 1.0) <= ratio.turns_interval
        half.append(COVERAGE * told.energy.uncertainty_j)
    return {name: round(count / runs, 4) for name, count in held.items()} | {
        "stated_half_median": round(float(np.median(half)), 5)
    }


def main() -> None:
    """Print the table, and write it."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--runs", type=int, default=2000)
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for name, deviations in CASES.items():
        for apart_s in (5.0, 40.0):
            found = coverage(*deviations, options.runs, apart_s)
            rows.append({"case": name, "percent": deviations, "span_s": 3 * apart_s, **found})
            print(json.dumps(rows[-1]))
    if options.out is not None:
        options.out.write_text(
            json.dumps(
                {"provenance": provenance(), "modelled": True, "runs": options.runs, "rows": rows}, indent=1
            )
            + "\n"
        )


if __name__ == "__main__":
    main()
