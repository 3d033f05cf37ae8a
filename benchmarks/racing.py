"""How often a race throws the best away, and what it spares: on windows of a GPU, and on recorded spaces.

`record` runs every configuration of a workload in the windows of a race, in several passes over the space
in random order, so that windows of one configuration lie a whole pass apart:

    python benchmarks/racing.py record scan-lf:N=1024 --out benchmarks/results/race-windows-h100.json

`simulate` plays races with the code that tuner runs. A space of `--windows` is played with its windows as
they were: every configuration is drawn from one of the passes, in random order. In the shipped recordings
each configuration has one window of 0.2 s: it is taken as the truth, and rungs are drawn around it, with the
recorded uncertainty, wider for shorter windows, and a repeatability of so many percent. Joules are played
with the bounds that spare windows; there the recorded values are the truth and the measurement.

    python benchmarks/racing.py simulate --windows benchmarks/results/race-windows-h100.json \
        --out benchmarks/results/racing.json
"""

import argparse
import json
import math
import random
import statistics
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from provenance import provenance

import tuner
from tuner.devices.cuda.rounds import SINGLES
from tuner.kernel_files.catalog import Catalog
from tuner.measurement.base import ComparisonTarget
from tuner.measurement.race import (
    ASSUMED_REPEATABILITY,
    ERROR,
    RUNGS_S,
    SINGLE_REPEATABILITY,
    JouleBounds,
    Race,
)
from tuner.model.objective import Objective
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.recordings.files import RecordingFile
from tuner.search.answer import contenders
from tuner.search.compilation import Compilation
from tuner.search.option_checks import SearchLimits
from tuner.search.plan import plan_search
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup

RECORDINGS = Path(tuner.__file__).parent / "recordings" / "h200.zip"
LEAST = 10  # configurations of a space
MOST_CONTENDERS = 8  # as tuner.search.answer confirms for the objective time
MOST_WITHIN = 0.02  # relative uncertainty of a short window, unless the recorded one's was more
LEAST_ROUNDS = 5  # of a window, however short
REPEATABILITIES = (0.0005, 0.001, 0.002, 0.004)
IDLE_W = (120.0, 1.0)  # of the recorded H200
TIME, ENERGY = Objective("time"), Objective("energy")

LOOKS_S = (0.0, *RUNGS_S)
"""Single rounds, and the rungs behind them."""

Looks = Callable[[Trial], list[Measurement]]


def main() -> None:
    """Record or simulate; write the JSON."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    commands = parser.add_subparsers(required=True)
    one = commands.add_parser("record")
    one.add_argument("workload")
    one.add_argument("--passes", type=int, default=5)
    one.add_argument("--device", default="cuda:0")
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(act=record)
    one = commands.add_parser("simulate")
    one.add_argument("--windows", type=Path, nargs="*", default=[])
    one.add_argument("--seeds", type=int, default=20)
    one.add_argument("--most", type=int, default=400, help="configurations of a space, drawn at random")
    one.add_argument("--out", type=Path, required=True)
    one.set_defaults(act=simulate)
    options = parser.parse_args()
    document = {"provenance": provenance(), **options.act(options)}
    options.out.write_text(json.dumps(document, indent=1) + "\n")


# --- on a GPU ------------------------------------------------------------------------------------


def record(options: argparse.Namespace) -> dict[str, Any]:
    """Windows of every configuration of a workload, by pass and rung."""
    request = SearchRequest(workloads=(options.workload,), objective="time")
    with open_setup(options.device, request) as setup:
        spaces = plan_search(request, Catalog.load(), setup).spaces(setup.device)
        (item,) = Compilation(spaces, setup.device).begin(SearchLimits())
        candidates = [candidate.configuration for candidate in item.candidates]
        windows: dict[str, list[list[list[float]]]] = {str(one): [] for one in candidates}
        took: dict[float, list[float]] = {rung_s: [] for rung_s in LOOKS_S}
        order = random.Random(0)  # noqa: S311 - orders and noise, no secrets
        for _ in range(options.passes):
            order.shuffle(candidates)
            for configuration in candidates:
                rungs = []
                for rung_s in LOOKS_S:
                    begun_s = time.monotonic()
                    record = setup.device.run([item.plans[configuration]], rung_s)
                    took[rung_s].append(time.monotonic() - begun_s - (record.end_s - record.start_s))
                    if record.makespan_s is not None:
                        rungs.append([record.makespan_s, record.makespan_uncertainty_s])
                if len(rungs) == len(LOOKS_S):
                    windows[str(configuration)].append(rungs)
        beside = {f"{rung_s:g}": statistics.median(times) for rung_s, times in took.items()}
        print(f"{len(candidates)} configurations, {options.passes} passes; beside the window, in s: {beside}")
        return {
            "device": setup.device.identity.name,
            "workload": options.workload,
            "looks_s": LOOKS_S,
            "beside_the_window_s": beside,
            "windows": {name: passes for name, passes in windows.items() if passes},
        }


# --- played --------------------------------------------------------------------------------------


def simulate(options: argparse.Namespace) -> dict[str, Any]:
    """Races on recorded windows and on recorded spaces, and bounds on recorded joules."""
    rows = [of_windows(json.loads(path.read_text()), options.seeds) for path in options.windows]
    recording = RecordingFile(RECORDINGS)
    spaces: dict[str, dict[Trial, Measurement]] = {}
    for names in recording.names:
        trials = recording.space(names).trials
        valid = {trial: one for trial, one in trials.items() if one.ok and one.makespan_s}
        draw = random.Random(0)  # noqa: S311 - as above
        kept = draw.sample(list(valid), min(options.most, len(valid)))
        if len(kept) >= LEAST:
            spaces[" + ".join(names)] = {trial: valid[trial] for trial in kept}
    rows += [of_spaces(spaces, options.seeds, deviation) for deviation in REPEATABILITIES]
    for row in rows:
        print(
            f"{row['noise']}: {row['races']} races, best thrown away in {row['thrown_away']:.2%},"
            f" not confirmed among too many ties in {row['not_confirmed'] - row['thrown_away']:.2%},"
            f" the best that is left is {row['above_best']['mean']:.3%} above it"
            f" (at most {row['above_best']['largest']:.2%}),"
            f" {row['windows_s']['share']:.1%} of the seconds of full windows,"
            f" {row['contenders']:.1f} contenders"
        )
    joules = of_joules(spaces, options.seeds)
    print(json.dumps(joules, indent=1))
    return {"assumed_repeatability": ASSUMED_REPEATABILITY, "error": ERROR, "races": rows, "joules": joules}


def of_windows(document: Mapping[str, Any], seeds: int) -> dict[str, Any]:
    """Races of a space whose windows were all measured; the truth is the mean of the longest ones."""
    windows: Mapping[str, list[list[list[float]]]] = document["windows"]
    trials = {name: Trial((), clock_mhz=place) for place, name in enumerate(windows)}
    truths = {
        trials[name]: statistics.fmean(one[-1][0] for one in passes) for name, passes in windows.items()
    }
    by_trial = {trials[name]: passes for name, passes in windows.items()}
    played = []
    for seed in range(10 * seeds):
        draw = random.Random(seed)  # noqa: S311 - as above

        def looks(trial: Trial, draw: random.Random = draw) -> list[Measurement]:
            return [measured(*look) for look in draw.choice(by_trial[trial])]

        played.append(race(truths, looks, draw))
    return summed(f"windows of {document['device']}, {document['workload']}", played)


def of_spaces(
    spaces: Mapping[str, Mapping[Trial, Measurement]], seeds: int, deviation: float
) -> dict[str, Any]:
    """Races of spaces of one window each, with noise drawn."""
    played = []
    for name, space in spaces.items():
        truths = {trial: one.makespan_s or 0.0 for trial, one in space.items()}
        for seed in range(seeds):
            draw = random.Random(f"{name} {seed}")  # noqa: S311 - as above

            def looks(trial: Trial, draw: random.Random = draw) -> list[Measurement]:
                one = space[trial]  # noqa: B023 - played before the next space
                factor = math.exp(draw.gauss(0.0, SINGLE_REPEATABILITY))
                found = [measured(truths[trial] * factor, MOST_WITHIN * truths[trial])]  # noqa: B023
                for rung_s in RUNGS_S:
                    length_s = max(rung_s, LEAST_ROUNDS * truths[trial])  # noqa: B023 - as above
                    own = TIME.relative_uncertainty(one)
                    within = min(own * math.sqrt(one.window_s / length_s), max(own, MOST_WITHIN))
                    factor = math.exp(draw.gauss(0.0, deviation) + draw.gauss(0.0, within))
                    found.append(measured(truths[trial] * factor, within * truths[trial]))  # noqa: B023
                return found

            played.append(race(truths, looks, draw))
    return summed(f"{len(spaces)} recorded spaces, repeatability {deviation:.2%}", played)


def measured(makespan_s: float, uncertainty_s: float) -> Measurement:
    """A window, as a device reports it."""
    results = (WorkloadResult(Status.OK, makespan_s),)
    return Measurement(results, makespan_s, makespan_uncertainty_s=uncertainty_s)


def race(
    truths: Mapping[Trial, float],
    looks: Looks,
    draw: random.Random,
) -> dict[str, float]:
    """One race in random order: whether the best is among the contenders, and what was measured."""
    order = list(truths)
    draw.shuffle(order)
    target, runner = ComparisonTarget(TIME, None, 0), Race()
    ended: dict[Trial, Measurement] = {}
    spent_s = 0.0
    for trial in order:
        taken: list[Measurement] = []
        singles, *rungs = looks(trial)
        if runner.takes_singles(target):
            spent_s += SINGLES * truths[trial]
            if runner.lost_in_singles(singles, target):
                ended[trial] = runner.honest_singles(singles, target)
                continue
            runner.add_singles(trial, singles)
        for rung_s, rung in zip(RUNGS_S, rungs, strict=True):
            taken.append(rung)
            spent_s += rung_s
            if runner.lost(taken, target) or not runner.tells_more(taken, target):
                break
        runner.add(trial, taken)
        ended[trial] = replace(taken[-1], makespan_uncertainty_s=runner.honest(taken[-1]))
        best = target.best
        if best is None or TIME.cost(ended[trial]) < TIME.cost(best[1]):
            best = trial, ended[trial]
        target = ComparisonTarget(TIME, best, len(ended))
    possible = contenders(TIME, ended)
    chosen = possible[:MOST_CONTENDERS]
    truly = min(truths, key=truths.__getitem__)
    return {
        "thrown_away": float(truly not in possible),
        "not_confirmed": float(truly not in chosen),
        "above_best": min(truths[trial] for trial in chosen) / truths[truly] - 1.0,
        "spent_s": spent_s,
        "full_s": len(order) * math.fsum(RUNGS_S),
        "contenders": len(possible),
    }


def summed(noise: str, played: Sequence[Mapping[str, float]]) -> dict[str, Any]:
    """Rates over races."""
    spent_s, full_s = (math.fsum(one[key] for one in played) for key in ("spent_s", "full_s"))
    return {
        "noise": noise,
        "races": len(played),
        "thrown_away": statistics.fmean(one["thrown_away"] for one in played),
        "not_confirmed": statistics.fmean(one["not_confirmed"] for one in played),
        "above_best": {
            "mean": statistics.fmean(one["above_best"] for one in played),
            "largest": max(one["above_best"] for one in played),
        },
        "windows_s": {"raced": spent_s, "full": full_s, "share": spent_s / full_s},
        "contenders": statistics.fmean(one["contenders"] for one in played),
    }


def of_joules(spaces: Mapping[str, Mapping[Trial, Measurement]], seeds: int) -> dict[str, Any]:
    """Spaces with joules in random order: who is spared, and who of them had less than the bound."""
    trials = spared = certain = below = wrong = lost = races = 0
    for name, space in spaces.items():
        known = {trial: one for trial, one in space.items() if one.energy is not None}
        if len(known) < LEAST:
            continue
        lowest = min(ENERGY.cost(one) for one in known.values())
        for seed in range(seeds):
            order = list(known)
            random.Random(f"{name} {seed}").shuffle(order)  # noqa: S311 - as above
            bounds, target = JouleBounds(), ComparisonTarget(ENERGY, None, 0)
            for trial in order:
                one = known[trial]
                found = bounds.rules_out(replace(one, energy=None), None, IDLE_W, target)
                trials += 1
                if found is not None:
                    spared += 1
                    certain += found.certain
                    below += ENERGY.cost(one) < found.least_j
                    wrong += target.best is not None and ENERGY.cost(one) < ENERGY.cost(target.best[1])
                    continue
                bounds.add(None, one)
                if target.best is None or ENERGY.cost(one) < ENERGY.cost(target.best[1]):
                    target = ComparisonTarget(ENERGY, (trial, one), target.measured)
            races += 1
            lost += target.best is None or ENERGY.cost(target.best[1]) > lowest
    return {
        "searches": races,
        "trials": trials,
        "spared": spared,
        "spared_for_certain": certain,
        "spared_below_their_bound": below,
        "spared_below_the_best": wrong,
        "searches_without_the_best": lost,
    }


if __name__ == "__main__":
    main()
