"""Which rule of stopping kernels of recorded spaces choose, and what the others' choice costs each of them.

`play` searches by `bayesian` without an end and keeps the lowest cost and the predicted gain after every
evaluation. `judge` asks of every rule of a grid where it would have ended these searches. Chosen is the rule
of highest mean efficiency of those that in sum take no more evaluations than the rule of before, and by
which no kernel loses: its mean efficiency falls by no more than `LOSS`, and its worst tenth of seeds by no
more than `WORST` times that. Kernels that judge take no part in the choice. Every other kernel is left out
once.

    python benchmarks/stopping_rules.py play FILES... --seeds 7 --out traces.json
    python benchmarks/stopping_rules.py judge traces.json... --out benchmarks/results/stopping-rules.json
"""

import argparse
import itertools
import json
import math
import multiprocessing
import os
import statistics
import sys
from collections.abc import Sequence
from fnmatch import fnmatch
from functools import lru_cache, partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
from provenance import provenance
from search import SETTINGS
from search_games import OBJECTIVE, Game, games_of, kernel_of, noise
from tuner.policies import bayesian as bayesian_module
from tuner.policies.auto import SMALL
from tuner.policies.stopping import GAIN, LEAST_EVALUATIONS, REST, StopRule
from tuner.policies.surrogate.learner import SearchRun

from tuner.recordings.values import search_of
from tuner.studies.comparison import play

LOSS = 20 * GAIN  # percent, in the mean of a kernel: a fifth of what is not worth going on for
WORST = 5  # times that, in the worst tenth of its seeds
Trace = dict[str, Any]


class Rule(NamedTuple):
    """Constants of ``tuner.policies.stopping``."""

    roots: float
    enough: int
    share: float
    believed: float


BEFORE = Rule(1.5, 100, 1 / 2, 0.1)
RULES = [
    Rule(*values)
    for values in itertools.product(
        (0.75, 1.0, 1.25, 1.5),
        (60, 70, 80, 90, 100),
        (0.3, 0.4, 0.5),
        (0.003, 0.01, 0.015, 0.02, 0.03, 0.05, 0.1),
    )
]


class Noting(StopRule):
    """Never ends a search, and keeps what a rule goes by."""

    def __init__(self, run: SearchRun, notes: list[tuple[int, float | None, float, float]]) -> None:
        super().__init__(run)
        self._notes = notes

    def _is_enough(self) -> bool:
        run, outlook = self._run, self._run.learner.outlook()
        expected = None if outlook is None else float(outlook.expected_gain)
        self._notes.append((len(run.lowest), expected, float(run.lowest[-1]), float(run.noise)))
        return False


@lru_cache
def games(where: str) -> list[Game]:
    """The spaces of a place that have one workload and are searched."""
    return [g for g in games_of(where) if len(g.space.workloads) == 1 and len(g.times_s) > SMALL]


def played(where: str, place: int, seed: int, most: int) -> Trace:
    """One search of a space of a place without an end."""
    return trace_of(games(where)[place], seed, most)


def trace_of(game: Game, seed: int, most: int) -> Trace:
    """One search without an end."""
    notes: list[tuple[int, float | None, float, float]] = []
    before = bayesian_module.stop_rule
    bayesian_module.stop_rule = lambda run, _: Noting(run, notes)
    try:
        search = search_of(game.space, OBJECTIVE.cost, seed=seed, noise=noise)
        asked = play(partial(bayesian_module.bayesian), search, game.space.look, min(most, len(game.times_s)))
    finally:
        bayesian_module.stop_rule = before
    lowest = np.minimum.accumulate([OBJECTIVE.cost(found) for _, found in asked])
    return {
        "space": game.name,
        "kernel": kernel_of(game),
        "size": len(game.times_s),
        "optimum_s": game.optimum_s,
        "seed": seed,
        "lowest_s": list(map(float, lowest)),
        "notes": notes,
    }


def end_of(trace: Trace, rule: Rule) -> int:
    """The evaluation at which a rule ends a search; see ``ExpectationStop``."""
    size, lowest_s = trace["size"], np.array(trace["lowest_s"])
    if not trace["notes"]:
        return len(lowest_s)
    counts, expected, lowest, uncertainty = np.array(trace["notes"], dtype=float).T  # None is NaN
    latest = np.maximum(LEAST_EVALUATIONS, np.ceil(np.minimum(rule.share * counts, REST * (size - counts))))
    before = (counts - latest).astype(int)
    least = np.maximum(GAIN, uncertainty)
    looked_around = max(LEAST_EVALUATIONS, min(rule.roots * math.sqrt(size), rule.enough))
    with np.errstate(invalid="ignore"):
        is_quiet = lowest >= lowest_s[np.maximum(before, 1) - 1] * (1 - least)
        ended = is_quiet & (before >= 1) & (counts >= looked_around) & np.isfinite(lowest)
        ended &= expected < rule.believed * least
    return int(counts[np.argmax(ended)]) if ended.any() else len(lowest_s)


def ends(traces: Sequence[Trace], rule: Rule) -> dict[str, Any]:
    """Where a rule ends searches of one kernel: medians, means and worst tenths over seeds, by space."""
    spaces: dict[str, list[tuple[int, float]]] = {}
    for trace in traces:
        count = end_of(trace, rule)
        efficiency = 100 * trace["optimum_s"] / trace["lowest_s"][count - 1]
        spaces.setdefault(trace["space"], []).append((count, efficiency))
    return {
        space: {
            "seeds": len(found),
            "evaluations": [round(float(q), 1) for q in np.quantile([n for n, _ in found], [0.1, 0.5, 0.9])],
            "median": round(statistics.median(e for _, e in found), 2),
            "mean": round(statistics.fmean(e for _, e in found), 3),
            "worst_tenth": round(float(np.quantile([e for _, e in found], 0.1)), 2),
        }
        for space, found in spaces.items()
    }


class Judge:
    """Searches by kernel, and what rules make of them.

    Args:
        traces: of all kernels.
    """

    def __init__(self, traces: Sequence[Trace]) -> None:
        self.kernels = list(dict.fromkeys(trace["kernel"] for trace in traces))
        self._traces = traces
        self.found = lru_cache(maxsize=None)(self._found)

    def _found(self, kernel: str, rule: Rule) -> tuple[float, float, float]:
        """Evaluations, mean efficiency and least worst tenth of a kernel."""
        rows = ends([one for one in self._traces if one["kernel"] == kernel], rule).values()
        return (
            statistics.fmean(row["evaluations"][1] for row in rows),
            statistics.fmean(row["mean"] for row in rows),
            min(row["worst_tenth"] for row in rows),
        )

    def choice(self, kernels: Sequence[str]) -> Rule:
        """The best rule of no more evaluations than before, and by which none of some kernels loses."""

        def evaluations(rule: Rule) -> float:
            return sum(self.found(one, rule)[0] for one in kernels)

        def is_harmless(rule: Rule) -> bool:
            pairs = [(self.found(kernel, BEFORE), self.found(kernel, rule)) for kernel in kernels]
            return all(b[1] - r[1] <= LOSS and b[2] - r[2] <= WORST * LOSS for b, r in pairs)

        most = evaluations(BEFORE)
        fine = [rule for rule in RULES if evaluations(rule) <= most and is_harmless(rule)]
        return max(fine, key=lambda rule: sum(self.found(one, rule)[1] for one in kernels))


def judged(traces: Sequence[Trace], judging: Sequence[str]) -> dict[str, Any]:
    """The rule that kernels choose, that of all but one for that one, and where searches end by it."""
    judge = Judge(traces)
    choosing = [one for one in judge.kernels if one not in judging]
    chosen = judge.choice(choosing)
    left_out = []
    for kernel in choosing:
        rule = judge.choice([one for one in choosing if one != kernel])
        named = zip(("evaluations", "mean", "worst_tenth"), judge.found(kernel, rule), strict=True)
        before = zip(("evaluations", "mean", "worst_tenth"), judge.found(kernel, BEFORE), strict=True)
        left_out.append(
            {"kernel": kernel, "others_choose": rule, "ends": dict(named), "before": dict(before)}
        )
    return {
        "chosen": chosen._asdict(),
        "before": BEFORE._asdict(),
        "judging": list(judging),
        "left_out": left_out,
        "spaces": ends(traces, chosen),
        "spaces_before": ends(traces, BEFORE),
    }


def show(document: dict[str, Any]) -> None:
    """The tables as Markdown."""
    print("| space | evaluations, before | mean, worst tenth, % | evaluations | mean, worst tenth, % |")
    print("|---|---:|---:|---:|---:|")
    for space, row in document["spaces"].items():
        cells = []
        for one in (document["spaces_before"][space], row):
            low, middle, high = one["evaluations"]
            cells += [f"{middle:.0f} ({low:.0f}–{high:.0f})", f"{one['mean']:.1f}, {one['worst_tenth']:.1f}"]
        print(f"| {space} | {' | '.join(cells)} |")
    print("\n| kernel left out | others choose | evaluations | mean, worst tenth, % | before |")
    print("|---|---|---:|---:|---:|")
    for one in document["left_out"]:
        rule = ", ".join(f"{value:.3g}" for value in one["others_choose"])
        after, before = one["ends"], one["before"]
        print(
            f"| {one['kernel']} | {rule} | {after['evaluations']:.0f}"
            f" | {after['mean']:.2f}, {after['worst_tenth']:.1f}"
            f" | {before['evaluations']:.0f}: {before['mean']:.2f}, {before['worst_tenth']:.1f} |"
        )


def main() -> None:
    """Play, or judge what was played."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("what", choices=("play", "judge"))
    parser.add_argument("files", nargs="+", help="recorded spaces (or h200), or traces")
    parser.add_argument("--names", default="*", help="patterns of the names of spaces (all)")
    parser.add_argument("--first", type=int, default=0, help="first seed (%(default)s)")
    parser.add_argument("--seeds", type=int, default=7, help="searches per space (%(default)s)")
    parser.add_argument("--most", type=int, default=160, help="evaluations of a search (%(default)s)")
    parser.add_argument("--judging", nargs="*", default=(), help="kernels that take no part in the choice")
    parser.add_argument("--jobs", type=int, default=2, help="processes that play (%(default)s)")
    parser.add_argument("--out", type=Path, required=True, help="JSON to write")
    options = parser.parse_args()
    if options.what == "play":
        searches = [
            (where, place, seed, options.most)
            for where in options.files
            for place, game in enumerate(games(where))
            if any(fnmatch(game.name, one) for one in options.names.split(","))
            for seed in range(options.first, options.first + options.seeds)
        ]
        os.environ.update(SETTINGS)  # read by the children when they start
        with multiprocessing.get_context("spawn").Pool(options.jobs) as pool:
            traces = pool.starmap(played, searches, chunksize=2)
        options.out.write_text(json.dumps(traces))
        return
    kept = [trace for path in options.files for trace in json.loads(Path(path).read_text())]
    document = judged(kept, options.judging)
    origin = provenance()
    words = [Path(word).name if os.sep in word else word for word in sys.argv[1:]]
    origin["command"] = " ".join(["python benchmarks/stopping_rules.py", *words])
    options.out.write_text(json.dumps({"provenance": origin, **document}, indent=1) + "\n")
    show(document)


if __name__ == "__main__":
    main()
