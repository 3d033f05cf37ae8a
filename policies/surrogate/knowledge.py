"""Measurements of other runs, as further tasks of the surrogate."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from tuner.model.plan import Configuration
from tuner.space.search_view import PriorRun, Search

from .features import Floats
from .joint import Joint
from .response import respond

SOURCES = 4  # tasks learnt from at most: the cost of a fit grows with the cube of the points
POINTS = 48  # of each: half of them its best, half drawn, so that it is known what is good and what is bad
LEAST = 4  # points below which a run says nothing


@dataclass(frozen=True)
class Knowledge:
    """Points of other tasks.

    Attributes:
        x: features, the last of which is the task (from 1), shape (n, features + 1).
        y: responses, standardised per task, shape (n,).
        scale: standard deviation of log cost that was divided by, the tasks' mean.
        reach: from the best log cost to the median's, the tasks' mean.
        tasks: with the target's, task 0.
    """

    x: Floats
    y: Floats
    scale: float
    reach: float
    tasks: int


def nearest(search: Search) -> list[PriorRun]:
    """The runs to learn from: same GPU first, then the nearest in size."""
    if len(search.workloads) != 1:
        return []  # a joint space is no task of a single workload's kind
    return [source for source in _by_distance(search, 0) if len(_finite(source)) >= LEAST][:SOURCES]


def best_known(search: Search, place: int) -> Configuration | None:
    """Of the runs that know a workload, the best configuration of the nearest that it has, too."""
    legal = {candidate.configuration for candidate in search.candidates[place]}
    for source in _by_distance(search, place):
        points = [point for point in _finite(source) if point[0] in legal]
        if points:
            return min(points, key=lambda point: point[1])[0]
    return None


def learnt(sources: Sequence[PriorRun], joint: Joint, draw: np.random.Generator) -> Knowledge | None:
    """Points to learn from; None where there are none.

    Args:
        sources: of `nearest`.
        joint: has features for their configurations.
        draw: picks the points.
    """
    parts = []
    for task, source in enumerate(sources, start=1):
        points = _picked(_finite(source), draw)
        every = respond(np.array([cost for _, cost in _finite(source)]))
        y = every.of(np.array([cost for _, cost in points]))
        features = joint.of_one([configuration for configuration, _ in points])
        parts.append((np.hstack([features, np.full((len(points), 1), float(task))]), y, every))
    if not parts:
        return None
    return Knowledge(
        x=np.vstack([x for x, _, _ in parts]),
        y=np.concatenate([y for _, y, _ in parts]),
        scale=float(np.mean([every.scale for _, _, every in parts])),
        reach=float(np.mean([every.bend - every.lowest for _, _, every in parts])),
        tasks=1 + len(parts),
    )


def _finite(source: PriorRun) -> list[tuple[Configuration, float]]:
    return [(configuration, cost) for configuration, cost in source.points if np.isfinite(cost)]


def _picked(
    points: list[tuple[Configuration, float]], draw: np.random.Generator
) -> list[tuple[Configuration, float]]:
    if len(points) <= POINTS:
        return points
    ranked = sorted(points, key=lambda point: point[1])
    rest = ranked[POINTS // 2 :]
    some = sorted(draw.choice(len(rest), POINTS - POINTS // 2, replace=False).tolist())
    return ranked[: POINTS // 2] + [rest[i] for i in some]


def _by_distance(search: Search, place: int) -> list[PriorRun]:
    """Runs that know a workload: those on the same GPU first, then the nearest in size."""
    sizes = search.sizes[place] if search.sizes else {}
    sources = [source for source in search.prior_runs if source.workload == place]
    return sorted(sources, key=lambda source: (source.device != search.device, _apart(source.sizes, sizes)))


def _apart(one: Mapping[str, int | str], other: Mapping[str, int | str]) -> float:
    """How far apart two problems are: halvings between their sizes; texts that differ count as one."""
    total = 0.0
    for name in {*one, *other}:
        a, b = one.get(name), other.get(name)
        if isinstance(a, int) and isinstance(b, int) and a > 0 and b > 0:
            total += abs(float(np.log2(a / b)))
        else:
            total += float(a != b)
    return total
