"""The joint space of a search: one axis per workload and one for the clock, and where it begins."""

import math
import statistics
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.model.plan import Configuration, without_place
from tuner.model.trial import GpuSetting, Trial
from tuner.space.search_view import Candidate, PriorRun, Search

from .features import Floats, Integers, TraitScale, beliefs, encoding, latin
from .gaussian import Posterior

# --- What configurations of a workload cost when it runs alone, as a feature of trials of several workloads.


def costs_alone(search: Search, workload: int) -> PriorRun | None:
    """The run of one of several workloads alone, at its sizes and on this GPU; None where none is known."""
    if len(search.workloads) == 1 or not search.sizes:
        return None
    for run in search.prior_runs:
        here = run.workload == workload and run.device == search.device
        if here and dict(run.sizes) == dict(search.sizes[workload]):
            return run
    return None


def slower_alone(run: PriorRun | None, choices: Sequence[Configuration]) -> Floats:
    """Return the extra cost of configurations alone over the cheapest: a feature, shape (choices, 1 or 0).

    It is the logarithm of the cost, from 0 for the cheapest to 1. What failed is as dear as the dearest; what
    was not measured is as dear as the middle one. Without a run of the workload alone, or where all cost the
    same, there is no feature.
    """
    if run is None:
        return np.zeros((len(choices), 0))
    measured = {c: math.log(cost) for c, cost in run.points if 0.0 < cost < math.inf}
    failed = {c for c, cost in run.points if cost == math.inf}
    bare = [without_place(choice) for choice in choices]
    logs = [measured[choice] for choice in bare if choice in measured]
    if not logs or min(logs) == max(logs):
        return np.zeros((len(choices), 0))
    lowest, highest, middle = min(logs), max(logs), statistics.median(logs)
    extra = [highest if choice in failed else measured.get(choice, middle) for choice in bare]
    return ((np.array(extra) - lowest) / (highest - lowest))[:, None]


# --- What is believed of thread blocks before anything is measured, where only their tunables are known.

LIKELY = (64, 512)  # threads of a block that most good configurations have: a power of two among these
AXES = ("block_size_x", "block_size_y", "block_size_z")  # tunables of blocks, as other tuners name them
SLOWER = 0.2  # logarithm of how much slower other blocks are believed to be
DOUBT = 0.2  # standard deviation of that
MOST_SLOWDOWN = 0.4  # however much slower they were found to be


def unlikely(candidates: Sequence[Candidate], configurations: Sequence[Configuration]) -> Floats:
    """1 for configurations whose blocks are believed to be slow, else 0, shape (configurations,).

    Where launches of candidates are known, all are 0: what is known there leads to better ones at once.
    """
    if any(candidate.launches for candidate in candidates):
        return np.zeros(len(configurations))
    return np.array([not _is_likely(configuration) for configuration in configurations], dtype=float)


def _is_likely(configuration: Configuration) -> bool:
    sizes = [int(configuration[name]) for name in AXES if name in configuration]
    threads = math.prod(sizes)
    return not sizes or (LIKELY[0] <= threads <= LIKELY[1] and threads & (threads - 1) == 0)


def slowdown(posterior: Posterior, others: Floats, y: Floats, scale: float) -> float:
    """Return the increase of the responses of unlikely blocks, by prior belief and by measurements.

    Least squares through the process: b = (u'K⁻¹y + b₀/τ²) / (u'K⁻¹u + 1/τ²). A belief that is never revised
    would keep an optimum among such blocks out.

    Args:
        posterior: of what was measured.
        others: ``unlikely`` of that, shape (n,).
        y: responses, shape (n,).
        scale: of the responses: so much of a logarithm is one.
    """
    believed, precision = SLOWER / scale, (scale / DOUBT) ** 2
    u, responses = posterior.whitened(others), posterior.whitened(y)
    estimate = (float(u @ responses) + precision * believed) / (float(u @ u) + precision)
    return min(max(estimate, 0.0), MOST_SLOWDOWN / scale)


MOST_CANDIDATES = 50_000  # candidates of a workload that are looked at; of more, so many are drawn
POOL = 16_384  # a space of at most so many trials is scored as a whole
SAMPLE = 4_096  # trials of a larger one that are scored at once
ROOM = 1.5  # times as many as there are, when room for more choices is made
AROUND = 512  # choices of an axis that are looked at for neighbours
NEAR = 24  # neighbours looked at, where so many are not yet measured


class Growing:
    """Rows of numbers with room for more behind them: large spaces take some in with every look around.

    Attributes:
        rows: shape (n, columns). They lie column by column, as `Joint.neighbours` compares whole columns.
    """

    def __init__(self, rows: NDArray[Any]) -> None:
        self.rows = self._room = np.asfortranarray(rows)

    def append(self, more: NDArray[Any]) -> None:
        """Put rows behind the others."""
        before, count = len(self.rows), len(self.rows) + len(more)
        if count > len(self._room):
            self._room = np.empty((int(ROOM * count), *self.rows.shape[1:]), self.rows.dtype, order="F")
            self._room[:before] = self.rows
        self._room[before:count] = more
        self.rows = self._room[:count]


class Axis:
    """Choices along one axis: the configurations of a workload, or what is set of the GPU.

    Attributes:
        codes: ranks, shape (choices, tunables).
        features: shape (choices, features).
        groups: length scale of every feature.
    """

    def __init__(self, codes: Integers, features: Floats, groups: Integers) -> None:
        self.codes, self.features, self.groups = Growing(codes), Growing(features), groups

    def __len__(self) -> int:
        return len(self.codes.rows)


class WorkloadAxis(Axis):
    """The configurations of a workload.

    Of a space that is too large to be listed they are a sample; those that are looked at beside them are
    appended, and keep their numbers.

    Attributes:
        choices: the configurations.
        large: the space where they are a sample of it.
        unlikely: 1 where blocks are believed to be slow, shape (choices,).
        traits: shape (choices, traits); no columns where nothing is believed of them.
        encoding: of its tunables.
    """

    def __init__(
        self,
        search: Search,
        workload: int,
        draw: np.random.Generator,
        required: Sequence[Configuration],
        known: Sequence[Configuration],
    ) -> None:
        candidates, self.large = search.candidates[workload], search.large_space(workload)
        self.choices = _choices([c.configuration for c in candidates], draw, required)
        self._number = {c: i for i, c in enumerate(self.choices)}
        self._around: set[int] = set()  # choices whose neighbours are choices, too
        lists = search.tunables[workload] if self.large is not None and search.tunables else None
        self.encoding = encoding([*self.choices, *known], lists)
        self.unlikely = Growing(unlikely(candidates, self.choices))
        believed = len(search.workloads) == 1 and not self.unlikely.rows.any()
        self._scale = TraitScale(candidates, self.choices, search.limits) if believed else None
        self.traits = Growing(np.zeros((len(self.choices), 0)) if self._scale is None else self._scale.table)
        self._run_alone = costs_alone(search, workload)
        codes, groups = self.encoding.codes(self.choices), self.encoding.groups
        alone = slower_alone(self._run_alone, self.choices)  # with a length scale of its own
        own = int(groups.max(initial=-1)) + 1 + np.arange(alone.shape[1])
        super().__init__(codes, np.hstack([self.encoding.features(codes), alone]), np.append(groups, own))

    def number(self, configuration: Configuration) -> int | None:
        """The number of a configuration; None where it is none of the workload."""
        if self.large is not None and configuration not in self._number:
            candidate = self.large.candidate(configuration)
            self._append([] if candidate is None else [candidate])
        return self._number.get(configuration)

    def look_around(self, number: int) -> None:
        """Of a large space, take in the neighbours of a choice."""
        if self.large is not None and number not in self._around:
            self._around.add(number)
            self._append(self.large.neighbours(self.choices[number]))

    def _append(self, candidates: Sequence[Candidate]) -> None:
        """Further choices, those that are not among them."""
        new = [candidate for candidate in candidates if candidate.configuration not in self._number]
        if not new:
            return
        before, configurations = len(self.choices), [candidate.configuration for candidate in new]
        self.choices += configurations
        self._number.update((c, before + i) for i, c in enumerate(configurations))
        codes = self.encoding.codes(configurations)
        alone = slower_alone(self._run_alone, self.choices)[before:]
        self.codes.append(codes)
        self.features.append(np.hstack([self.encoding.features(codes), alone]))
        self.unlikely.append(unlikely(new, configurations))
        if self._scale is not None:
            self.traits.append(self._scale.of(new))


class Joint:
    """Trials as rows of choices, shape (trials, axes).

    Args:
        search: what may be chosen; every workload has a candidate.
        draw: picks a sample where a workload has very many candidates.
        required: trials that must be in that sample.
        sources: their configurations have features, too.

    Attributes:
        groups: length scale of every feature.
        tunables: that vary, the clock included.
        several: more than one workload runs.
        is_sample: the choices of a workload are a sample of its space.
        doubtful: some blocks are believed to be slower than others.
        has_traits: there are beliefs about the configurations by their traits.
    """

    def __init__(
        self,
        search: Search,
        draw: np.random.Generator,
        required: Sequence[Trial],
        sources: Sequence[PriorRun] = (),
    ) -> None:
        self._workloads = [
            WorkloadAxis(
                *(search, workload, draw, [trial.configurations[workload] for trial in required]),
                [c for run in sources if run.workload == workload for c, _ in run.points],
            )
            for workload in range(len(search.candidates))
        ]
        self._settings = search.settings
        self._axes: list[Axis] = [*self._workloads, _setting_axis(self._settings)]
        self.several = len(self._workloads) > 1
        self.tunables = sum(axis.codes.rows.shape[1] for axis in self._axes)
        self.is_sample = any(axis.large is not None for axis in self._workloads)
        self.doubtful = any(bool(axis.unlikely.rows.any()) for axis in self._workloads)
        self.has_traits = bool(self._workloads[0].traits.rows.any())
        starts = np.cumsum([0, *(axis.groups.max(initial=-1) + 1 for axis in self._workloads)])
        self.groups = np.concatenate([a.groups + s for a, s in zip(self._axes, starts, strict=True)])

    @property
    def shape(self) -> tuple[int, ...]:
        """Choices per axis; the last one is the clock, with the power limit where these are searched."""
        return tuple(map(len, self._axes))

    @property
    def size(self) -> int:
        """Trials of the choices."""
        return math.prod(self.shape)

    def of_one(self, configurations: Sequence[Configuration]) -> Floats:
        """Features of configurations of the only workload, at the first clock."""
        encoded = self._workloads[0].encoding
        own = encoded.features(encoded.codes(configurations))
        return np.hstack([own, np.zeros((len(configurations), self.groups.size - own.shape[1]))])

    def features(self, rows: Integers) -> Floats:
        """Features, shape (trials, features)."""
        return np.hstack([axis.features.rows[rows[:, i]] for i, axis in enumerate(self._axes)])

    def codes(self, rows: Integers) -> Integers:
        """Ranks of all tunables, shape (trials, tunables)."""
        return np.hstack([axis.codes.rows[rows[:, i]] for i, axis in enumerate(self._axes)])

    def unlikely(self, rows: Integers) -> Floats:
        """1 where the blocks of a workload are believed to be slow, else 0, shape (trials,)."""
        slow_blocks = [axis.unlikely.rows[rows[:, i]] for i, axis in enumerate(self._workloads)]
        return np.asarray(np.max(slow_blocks, axis=0, initial=0.0))

    def traits(self, rows: Integers) -> Floats:
        """Traits of the only workload's configurations, shape (trials, traits)."""
        return np.asarray(self._workloads[0].traits.rows[rows[:, 0]])

    def trial(self, row: Integers) -> Trial:
        """The trial of a row."""
        chosen = (axis.choices[i] for axis, i in zip(self._workloads, row[:-1], strict=True))
        setting = self._settings[int(row[-1])]
        return Trial(tuple(chosen), setting.clock_mhz, setting.power_limit_w)

    def row(self, trial: Trial) -> Integers | None:
        """The row of a trial; None where it lies outside of the space."""
        if trial.setting not in self._settings or len(trial.configurations) != len(self._workloads):
            return None
        row = [axis.number(c) for axis, c in zip(self._workloads, trial.configurations, strict=True)]
        if None in row:
            return None
        return np.array([*row, self._settings.index(trial.setting)], dtype=np.int64)

    def pool(self, draw: np.random.Generator) -> Integers:
        """All trials of a listed space of at most `POOL`, else `SAMPLE` at random, less those drawn twice."""
        if self.size <= POOL and not self.is_sample:
            return np.indices(self.shape).reshape(len(self.shape), -1).T
        drawn = np.stack([draw.integers(count, size=SAMPLE) for count in self.shape], axis=1)
        return np.unique(drawn, axis=0)

    def neighbours(self, row: Integers, measured: set[tuple[int, ...]]) -> Integers:
        """Trials near a row that are not measured: those that differ in one tunable, and the next nearest.

        One axis differs, in as few tunables as possible: where constraints tie tunables together, the
        nearest legal configuration differs in several.
        """
        for workload, choice in zip(self._workloads, row.tolist(), strict=False):
            workload.look_around(choice)
        rows, steps = [], []
        for i, axis in enumerate(self._axes):
            codes = axis.codes.rows
            differing = (codes != codes[row[i]]).sum(axis=1)
            near = least(differing, AROUND)
            moved = np.repeat(row[None, :], len(near), axis=0)
            moved[:, i] = near
            rows.append(moved)
            steps.append(differing[near])
        near, distance = np.vstack(rows), np.concatenate(steps)
        free = np.zeros(len(near), dtype=bool)
        for reach in np.unique(distance):
            here = np.flatnonzero(distance == reach)
            free[here] = [tuple(neighbour) not in measured for neighbour in near[here].tolist()]
            if reach >= 1 and free.sum() >= NEAR:
                break
        return np.asarray(near[free])


def least(numbers: Integers, count: int) -> Integers:
    """Places of the ``count`` least of some small numbers, the least first, the earliest of equals."""
    most = int(np.searchsorted(np.cumsum(np.bincount(numbers)), count))
    some = np.flatnonzero(numbers <= most)
    return np.asarray(some[np.argsort(numbers[some], kind="stable")[:count]])


def _choices(
    configurations: list[Configuration], draw: np.random.Generator, required: Sequence[Configuration]
) -> list[Configuration]:
    if len(configurations) <= MOST_CANDIDATES:
        return configurations
    drawn = set(draw.choice(len(configurations), MOST_CANDIDATES, replace=False).tolist())
    must_stay = set(required)
    return [c for i, c in enumerate(configurations) if i in drawn or c in must_stay]


def _setting_axis(settings: Sequence[GpuSetting]) -> Axis:
    """Clocks, and power limits, are a numeric tunable each, where there is more than one."""
    columns, features = [np.zeros((len(settings), 0), dtype=np.int64)], [np.zeros((len(settings), 0))]
    for values in (
        [setting.clock_mhz for setting in settings],
        [setting.power_limit_w for setting in settings],
    ):
        distinct = list(dict.fromkeys(values))
        if len(distinct) > 1:
            codes = np.array([distinct.index(value) for value in values], dtype=np.int64)[:, None]
            columns.append(codes)
            features.append(codes / (len(distinct) - 1))
    groups = np.arange(len(columns) - 1, dtype=np.int64)
    return Axis(np.hstack(columns), np.hstack(features), groups)


# --- Transforms costs for the surrogate: logarithms, the slow half compressed, standardised.

SQUASH = 0.3  # of what lies above the bend: how slow the slow are matters little, and would hide the rest
LEAST_COST = 1e-300  # a cost of zero has no logarithm
LEAST_SCALE = 1e-9  # of the logarithms: equal costs have none


@dataclass(frozen=True)
class CostTransform:
    """Transform from costs to responses.

    Attributes:
        bend: log cost above which differences are squashed, the median.
        middle: mean of the bent log costs.
        scale: their standard deviation.
    """

    bend: float
    middle: float
    scale: float

    def of(self, costs: Floats) -> Floats:
        """Responses of costs, shape (n,)."""
        return (_bent(_logs(costs), self.bend) - self.middle) / self.scale

    def costs(self, responses: Floats) -> Floats:
        """Costs of responses, shape (n,): the inverse of ``of``."""
        logs = self.middle + self.scale * responses
        return np.asarray(np.exp(np.where(logs > self.bend, self.bend + (logs - self.bend) / SQUASH, logs)))


def respond(costs: Floats, *, scale: float = 0.0, weight: float = 0.0) -> CostTransform:
    """The response that fits some costs.

    Args:
        costs: finite, at least one.
        scale: a standard deviation known beforehand.
        weight: how many costs it counts for.
    """
    logs = _logs(costs)
    bend = float(statistics.median(logs))
    bent = _bent(logs, bend)
    middle = float(np.mean(bent))
    variance = (weight * scale**2 + float(np.sum((bent - middle) ** 2))) / (weight + len(bent))
    return CostTransform(bend, middle, max(float(np.sqrt(variance)), LEAST_SCALE))


def _logs(costs: Floats) -> Floats:
    return np.asarray(np.log(np.maximum(costs, LEAST_COST)))


def _bent(logs: Floats, bend: float) -> Floats:
    return np.asarray(np.where(logs > bend, bend + SQUASH * (logs - bend), logs))


GOOD = 0.1  # of a space: the trials believed to be the fastest, of which the first ones are taken


def start_rows(
    joint: Joint, pool: Integers, measured: Integers, count: int, draw: np.random.Generator
) -> list[Integers]:
    """Trials that between them tell much of a space.

    They are a Latin hypercube; where something is believed of the space, one over what is believed to be
    good. Its rows lie in corners, many of them with blocks of few threads or of very many; where such blocks
    are to be doubted, rows of likely ones are drawn at random instead.

    Args:
        joint: the space.
        pool: rows that may be drawn, shape (n, axes).
        measured: rows that are measured anyway, shape (k, axes).
        count: rows wanted.
        draw: source of randomness.
    """
    if joint.has_traits:
        order = np.argsort(joint.traits(pool) @ beliefs().mean, kind="stable")
        pool = pool[np.sort(order[: max(count, math.ceil(GOOD * len(pool)))])]
    if not joint.doubtful:
        return [pool[i] for i in latin(joint.codes(pool), joint.codes(measured), count, draw)]
    measured_keys = {tuple(row) for row in measured.tolist()}
    free = np.array([tuple(row) not in measured_keys for row in pool.tolist()], dtype=bool)
    likely = np.flatnonzero(free & (joint.unlikely(pool) == 0))
    chosen = likely if len(likely) >= count else np.flatnonzero(free)
    return list(pool[draw.choice(chosen, min(count, len(chosen)), replace=False)]) if len(chosen) else []
