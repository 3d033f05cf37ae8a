"""Scores of a policy: on one space, and over the problem sizes of an operation."""

import math
import statistics
from collections.abc import Mapping, Sequence
from typing import Any

from tuner.model.records import Record
from tuner.studies.comparison import Play, phi
from tuner.studies.measured_spaces import Field

# Evaluations at which curves are given: close where policies differ, apart where they no longer do.
MARKS = (1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 70, 100, 140, 200, 300, 500, 1000, 2000, 5000)
_BAND = (0.16, 0.84)  # quantiles over seeds: two of three values lie between

Played = Sequence[tuple[Field, Sequence[Play]]]
"""The plays of one policy, field by field."""


def on_space(field: Field, plays: Sequence[Play]) -> Record:
    """A policy on one space."""
    efficiencies = [field.efficiency(play) for play in plays]
    middle = field.median_play(plays)
    return {
        "plays": len(plays),
        "errors": sorted({play.error for play in plays if play.error}),
        "efficiency": field.median_efficiency(plays),
        "efficiency_lowest": min(efficiencies),
        "efficiency_highest": max(efficiencies),
        **_effort([(field, plays)]),
        "answer": field.answer(middle),
        "of_seeds": {"efficiency": efficiencies, "evaluations": [play.evaluations for play in plays]},
    }


def on_operation(played: Played, *, alike: bool) -> Record:
    """A policy over the sizes of an operation.

    Args:
        played: at least one size.
        alike: whether the sizes share a rate, so that a mean of it says something.
    """
    answers = [field.answer(field.median_play(plays)) for field, plays in played]
    best = [field.described(*field.best) for field, _ in played]
    by_seed = phi_by_seed(played)
    return {
        "sizes": len(played),
        "plays": sum(len(plays) for _, plays in played),
        "phi": statistics.median(by_seed),  # of medians by size it could be above that of every seed
        "phi_lowest": min(by_seed),
        "phi_highest": max(by_seed),
        **_effort(played),
        **means(answers, best, alike=alike),
        "curve": _curve(played),
    }


def means(answers: Sequence[Mapping[str, Any] | None], best: Sequence[Record], *, alike: bool) -> Record:
    """Average performance, as in the paper's Table II, and average energy over the sizes that have joules.

    A mean over other sizes than the best has could be above it: there is none where an answer is missing.

    Args:
        answers: one per size; None where there is none.
        best: of each size. Where these have joules, energy is averaged.
        alike: whether the sizes share a rate.
    """
    found = [answer for answer in answers if answer is not None]
    units = {answer["rate_name"] for answer in found}
    rates = [answer["rate"] for answer in found if answer["rate"] is not None]
    rated = alike and len(units) == 1 and len(rates) == len(answers) > 0
    wanted = [answer for answer, one in zip(answers, best, strict=True) if one["energy_j"] is not None]
    joules = [answer for answer in wanted if answer is not None and answer["energy_j"] is not None]
    known = alike and len(joules) == len(wanted) > 0
    spread_j = math.hypot(*(a["energy_j_uncertainty"] for a in joules)) / len(joules) if known else None
    return {
        "rate": statistics.fmean(rates) if rated else None,
        "rate_name": units.pop() if rated else "",
        "energy_j": statistics.fmean(a["energy_j"] for a in joules) if known else None,
        "energy_j_uncertainty": spread_j,
        "energy_sizes": len(joules) if known else 0,
    }


def phi_by_seed(played: Played, evaluations: float = math.inf) -> list[float]:
    """Φ of every seed, of what it had found after so many evaluations; each was played on all sizes."""
    by_seed = [{play.job.seed: play for play in plays} for _, plays in played]
    fields = [field for field, _ in played]
    return [
        phi([field.efficiency(of[seed], evaluations) for field, of in zip(fields, by_seed, strict=True)])
        for seed in sorted(by_seed[0])
    ]


def _effort(played: Played) -> Record:
    """Evaluations and search time, over all plays that did not raise."""
    ended = [(field, play) for field, plays in played for play in plays if not play.error]
    if not ended:
        names = ("evaluations", "evaluations_most", "evaluations_to_close", "search_s_per_evaluation")
        return dict.fromkeys(names)
    counts = [play.evaluations for _, play in ended]
    to_close = statistics.median_low([field.to_close(play) for field, play in ended])
    each_s = [play.search_s / play.evaluations for _, play in ended if play.evaluations]
    return {
        "evaluations": statistics.median_low(counts),
        "evaluations_most": max(counts),
        "evaluations_to_close": int(to_close) if math.isfinite(to_close) else None,
        "search_s_per_evaluation": statistics.median(each_s) if each_s else None,
    }


def _curve(played: Played) -> Record:
    """Φ over evaluations: median and band over seeds, up to where no play went on."""
    last = max(play.evaluations for _, plays in played for play in plays)
    marks = [mark for mark in MARKS if mark < last] + [last]
    columns = [sorted(phi_by_seed(played, mark)) for mark in marks]
    return {
        "evaluations": marks,
        "median": [statistics.median(column) for column in columns],
        "low": [_quantile(column, _BAND[0]) for column in columns],
        "high": [_quantile(column, _BAND[1]) for column in columns],
    }


def _quantile(ordered: Sequence[float], share: float) -> float:
    return ordered[round(share * (len(ordered) - 1))]
