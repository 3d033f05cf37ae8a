"""How often `tuner gate` is right: planted regressions under noise that was recorded on three GPUs.

The turns are played, the decision is the gate's own. A window of a side is its true cost times noise:

- H200, time: deviations of windows of 12 ms, measured three times in minutes (race-windows-h200.json);
- H200, energy: deviations of 18 windows of 1.5 s (neighbour-influence-h200.json), and as it warms 1.8 % more;
- H100, time: the scatter of the rounds of a recorded trial (h100.zip), drawn for each kernel;
- RTX A6000, time: standard deviations of launches in percent, quantiles over the 11,130 configurations of a
  public recording (AutoTuningAssociation/benchmark_hub, dedispersion), drawn for each kernel;
- a shared runner: the H200's, and others who compute a tenth of the time: windows take up to 50 % more then.

    python benchmarks/gate_verdicts.py --out benchmarks/results/gate-verdicts.json
"""

import json
import math
from collections import Counter
from collections.abc import Callable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
from provenance import command_line, provenance, save

from tuner.model.trial import Energy, Measurement, Status, WorkloadResult
from tuner.recordings.files import open_recording
from tuner.search.gate import compared

RESULTS = Path(__file__).parent / "results"
EFFECTS = (0.0, 0.01, 0.03, 0.05, 0.10)
MARGIN, LIMIT_S = 0.03, 60.0
TIME_S, ENERGY_S = 0.02, 1.0  # of the device for a window, with what is beside it
A6000_PERCENT = (2.47, 2.93, 3.53, 3.89, 4.19, 4.43, 4.58, 4.89)  # at 5, 10, 25, 50, 75, 90, 95 and 99 %
WARMING, WARM_S = 0.018, 40.0

Noise = Iterator[float]
"""Logarithms by which windows of one kernel differ from the truth, one after another."""


@cache
def _windows_of_h200() -> Any:
    recorded = json.loads((RESULTS / "race-windows-h200.json").read_text())["windows"]
    windows = np.log([[looks[2][0] for looks in passes] for passes in recorded.values()])
    return (windows - windows.mean(axis=1, keepdims=True)).ravel() * math.sqrt(1.5)  # as from the truth


def h200_time(generator: np.random.Generator) -> Noise:
    """Deviations from the mean of three windows."""
    return _drawn(generator, _windows_of_h200())


@cache
def _joules_of_h200() -> Any:
    recorded = json.loads((RESULTS / "neighbour-influence-h200.json").read_text())["windows"]
    joules = np.log([window["energy_j"] for window in recorded])
    return joules - joules.mean()


def h200_energy(generator: np.random.Generator) -> Noise:
    """Deviations from the mean of windows of one kernel, and warming."""
    for number, deviation in enumerate(_drawn(generator, _joules_of_h200())):
        yield deviation - WARMING * math.exp(-number * ENERGY_S / WARM_S)


@cache
def _scatter_of_h100() -> list[float]:
    recording = open_recording("h100")
    return [
        trial.makespan_spread_s / trial.makespan_s
        for name in recording.names[:4]
        for trial in recording.space(name).trials.values()
        if trial.ok and trial.makespan_s
    ]


def h100_time(generator: np.random.Generator) -> Noise:
    """A window scatters as the rounds of a recorded trial did."""
    return _normal(generator, _scatter_of_h100())


def a6000_time(generator: np.random.Generator) -> Noise:
    """A window scatters as single launches did."""
    return _normal(generator, [percent / 100 for percent in A6000_PERCENT])


def shared_runner(generator: np.random.Generator) -> Noise:
    """Others come for 20 windows in the mean, and go for 180."""
    theirs, more = False, 0.0
    for deviation in h200_time(generator):
        if generator.random() < (1 / 20 if theirs else 1 / 180):
            theirs, more = not theirs, generator.uniform(0.05, 0.5)
        yield deviation + (math.log1p(more * generator.random()) if theirs else 0.0)


def _drawn(generator: np.random.Generator, deviations: Any) -> Noise:
    while True:
        yield from generator.choice(deviations, 256)


def _normal(generator: np.random.Generator, scatter: list[float]) -> Noise:
    deviation = generator.choice(scatter)
    while True:
        yield from generator.normal(0.0, deviation, 256)


CASES: dict[str, tuple[Callable[[np.random.Generator], Noise], str]] = {
    "H200": (h200_time, "time"),
    "H200, warming": (h200_energy, "energy"),
    "H100": (h100_time, "time"),
    "RTX A6000": (a6000_time, "time"),
    "shared runner": (shared_runner, "time"),
}


def verdict(noise: Noise, effect: float, objective: str) -> tuple[str, float, int]:
    """The verdict on a change of so much, the seconds of the device, and the turns that it took."""
    passed_s = 0.0

    def measure(new: bool) -> Measurement:
        nonlocal passed_s
        passed_s += ENERGY_S if objective == "energy" else TIME_S
        cost = (1.0 + effect if new else 1.0) * math.exp(next(noise))
        time_s = cost if objective == "time" else 1.0
        energy = Energy(cost, 1e-3 * cost, cost, "played", "gpu") if objective == "energy" else None
        return Measurement((WorkloadResult(Status.OK, time_s),), time_s, energy=energy)

    found = compared(measure, {objective: MARGIN}, lambda: passed_s, LIMIT_S)
    return found.verdict, found.device_s, found.turns


def row(name: str, effect: float, runs: int) -> dict[str, Any]:
    """Shares of the verdicts of so many runs."""
    play, objective = CASES[name]
    generator = np.random.default_rng([len(name), round(1000 * effect)])
    verdicts: Counter[str] = Counter()
    seconds = []
    for _ in range(runs):
        found, passed_s, _ = verdict(play(generator), effect, objective)
        verdicts[found] += 1
        seconds.append(passed_s)
    shares = {word.replace(" ", "_"): verdicts[word] / runs for word in ("worse", "no worse", "undecided")}
    times = {"median_s": round(float(np.median(seconds)), 2), "longest_s": round(max(seconds), 2)}
    return {"noise": name, "objective": objective, "effect": effect, **shares, **times}


def main() -> None:
    """Print the shares, and write them."""
    parser = command_line(__doc__)
    parser.add_argument("--runs", type=int, default=500, help="runs of each case")
    options = parser.parse_args()
    rows = [row(name, effect, options.runs) for name in CASES for effect in EFFECTS]
    for one in rows:
        print(json.dumps(one))
    document = {"margin": MARGIN, "limit_s": LIMIT_S, "runs": options.runs, "modelled": True, "rows": rows}
    save(options.out, {"provenance": provenance(), **document})


if __name__ == "__main__":
    main()
