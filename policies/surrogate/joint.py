"""The joint space of a search: one axis per workload and one for the clock."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from tuner.model.plan import Configuration
from tuner.model.trial import GpuSetting, Trial
from tuner.space.search_view import Candidate, PriorRun, Search

from .alone import costs_alone, slower_alone
from .blocks import unlikely
from .features import Encoding, Floats, Integers, encoding
from .traits import TraitScale

MOST = 50_000  # candidates of a workload that are looked at; of more, so many are drawn
POOL = 16_384  # a space of at most so many trials is scored as a whole
SAMPLE = 4_096  # trials of a larger one that are scored at once
AROUND = 512  # choices of an axis that are looked at for neighbours
NEAR = 24  # neighbours looked at, where so many are not yet measured


@dataclass(frozen=True)
class Axis:
    """The choices of one workload, or what is set of the GPU.

    Attributes:
        codes: ranks, shape (choices, tunables).
        features: shape (choices, features).
        groups: length scale of every feature.
        sizes: logarithms of numbers, shape (choices, tunables).
    """

    codes: Integers
    features: Floats
    groups: Integers
    sizes: Floats

    @property
    def lengths(self) -> int:
        """Length scales it has."""
        return int(self.groups.max(initial=-1)) + 1

    def extended(self, other: "Axis") -> "Axis":
        """With further choices behind its own."""
        return Axis(
            np.vstack([self.codes, other.codes]),
            np.vstack([self.features, other.features]),
            self.groups,
            np.vstack([self.sizes, other.sizes]),
        )


class Joint:
    """Trials as rows of choices, shape (trials, axes).

    Of a space that is too large to be listed, the choices are a sample; those that are looked at beside them
    are appended, and rows keep their meaning.

    Args:
        search: what may be chosen; every workload has a candidate.
        draw: picks a sample where a workload has very many candidates.
        kept: trials that must be in that sample.
        sources: their configurations have features, too.

    Attributes:
        shape: choices per axis; the last one is the clock, with the power limit where these are searched.
        groups: length scale of every feature.
        encodings: per workload.
        tunables: that vary, the clock included.
        several: more than one workload runs.
    """

    def __init__(
        self,
        search: Search,
        draw: np.random.Generator,
        kept: Sequence[Trial],
        sources: Sequence[PriorRun] = (),
    ) -> None:
        self._choices = [
            _choices([c.configuration for c in candidates], draw, [t.configurations[place] for t in kept])
            for place, candidates in enumerate(search.candidates)
        ]
        self.several = len(self._choices) > 1
        self._settings = search.settings
        self._large = [search.large_space(place) for place in range(len(self._choices))]
        self._around: set[tuple[int, int]] = set()  # places and choices whose neighbours are choices, too
        self._places = [{c: i for i, c in enumerate(choices)} for choices in self._choices]
        self.encodings = [
            encoding(
                [*choices, *(c for k in sources if k.workload == place for c, _ in k.points)],
                None if self._large[place] is None or not search.tunables else search.tunables[place],
            )
            for place, choices in enumerate(self._choices)
        ]
        self._unlikely = [
            unlikely(candidates, choices)
            for candidates, choices in zip(search.candidates, self._choices, strict=True)
        ]
        wanted = not self.several and not self.doubtful
        self._scale = TraitScale(search.candidates[0], self._choices[0], search.limits) if wanted else None
        self._traits = np.zeros((0, 0)) if self._scale is None else self._scale.table
        self._alone = [costs_alone(search, place) for place in range(len(self._choices))]
        axes = [
            _axis(encoded, choices, slower_alone(run, choices))
            for encoded, choices, run in zip(self.encodings, self._choices, self._alone, strict=True)
        ]
        self._axes = [*axes, _setting_axis(self._settings)]
        self.shape = tuple(len(axis.codes) for axis in self._axes)
        self.tunables = sum(axis.codes.shape[1] for axis in self._axes)
        starts = np.cumsum([0, *(axis.lengths for axis in axes)])
        self.groups = np.concatenate([a.groups + s for a, s in zip(self._axes, starts, strict=True)])

    @property
    def is_sample(self) -> bool:
        """Whether the choices of a workload are a sample of its space."""
        return any(large is not None for large in self._large)

    @property
    def size(self) -> int:
        """Trials of the choices."""
        total = 1
        for count in self.shape:
            total *= count
        return total

    def of_one(self, configurations: Sequence[Configuration]) -> Floats:
        """Features of configurations of the only workload, at the first clock."""
        found = self.encodings[0].features(self.encodings[0].codes(configurations))
        return np.hstack([found, np.zeros((len(configurations), self.groups.size - found.shape[1]))])

    def features(self, rows: Integers) -> Floats:
        """Features, shape (trials, features)."""
        return np.hstack([axis.features[rows[:, i]] for i, axis in enumerate(self._axes)])

    def sizes(self, rows: Integers) -> Floats:
        """Logarithms of the numbers among all tunables, shape (trials, tunables)."""
        return np.hstack([axis.sizes[rows[:, i]] for i, axis in enumerate(self._axes)])

    def codes(self, rows: Integers) -> Integers:
        """Ranks of all tunables, shape (trials, tunables)."""
        return np.hstack([axis.codes[rows[:, i]] for i, axis in enumerate(self._axes)])

    @property
    def doubtful(self) -> bool:
        """Whether some blocks are believed to be slower than others."""
        return any(bool(slow.any()) for slow in self._unlikely)

    def unlikely(self, rows: Integers) -> Floats:
        """1 where the blocks of a workload are believed to be slow, else 0, shape (trials,)."""
        found = [slow[rows[:, place]] for place, slow in enumerate(self._unlikely)]
        return np.asarray(np.max(found, axis=0, initial=0.0))

    @property
    def has_traits(self) -> bool:
        """Whether something is believed of the configurations by their traits."""
        return bool(self._traits.any())

    def traits(self, rows: Integers) -> Floats:
        """Traits of the only workload's configurations, shape (trials, traits)."""
        return self._traits[rows[:, 0]]

    def trial(self, row: Integers) -> Trial:
        """The trial of a row."""
        chosen = (choices[i] for choices, i in zip(self._choices, row[:-1], strict=True))
        setting = self._settings[int(row[-1])]
        return Trial(tuple(chosen), setting.clock_mhz, setting.power_limit_w)

    def row(self, trial: Trial) -> Integers | None:
        """The row of a trial; None where it lies outside of the space."""
        if trial.setting not in self._settings or len(trial.configurations) != len(self._places):
            return None
        for place, configuration in enumerate(trial.configurations):
            large = self._large[place]
            if large is not None and configuration not in self._places[place]:
                one = large.candidate(configuration)
                self._append(place, [] if one is None else [one])
        places = [place.get(c) for place, c in zip(self._places, trial.configurations, strict=True)]
        if None in places:
            return None
        return np.array([*places, self._settings.index(trial.setting)], dtype=np.int64)

    def pool(self, draw: np.random.Generator) -> Integers:
        """All trials of a space of at most `POOL`, else `SAMPLE` at random, less those drawn twice."""
        if self.size <= POOL:
            return np.indices(self.shape).reshape(len(self.shape), -1).T
        drawn = np.stack([draw.integers(count, size=SAMPLE) for count in self.shape], axis=1)
        return np.unique(drawn, axis=0)

    def neighbours(self, row: Integers, measured: set[tuple[int, ...]]) -> Integers:
        """Trials near a row that are not measured: those that differ in one tunable, and the next nearest.

        One axis differs, in as few tunables as possible: where constraints tie tunables together, the
        nearest legal configuration differs in several.
        """
        self._look_around(row)
        rows, steps = [], []
        for i, axis in enumerate(self._axes):
            differing = (axis.codes != axis.codes[row[i]]).sum(axis=1)
            near = least(differing, AROUND)
            found = np.repeat(row[None, :], len(near), axis=0)
            found[:, i] = near
            rows.append(found)
            steps.append(differing[near])
        near, distance = np.vstack(rows), np.concatenate(steps)
        free = np.array([tuple(one) not in measured for one in near.tolist()], dtype=bool)
        near, distance = near[free], distance[free]
        if not len(near):
            return np.asarray(near)
        reach = max(1, int(np.sort(distance)[min(NEAR, len(distance)) - 1]))
        return np.asarray(near[distance <= reach])

    def _look_around(self, row: Integers) -> None:
        """Of large spaces, take in the neighbours of a row's choices."""
        for place, large in enumerate(self._large):
            choice = int(row[place])
            if large is not None and (place, choice) not in self._around:
                self._around.add((place, choice))
                self._append(place, large.neighbours(self._choices[place][choice]))

    def _append(self, place: int, candidates: Sequence[Candidate]) -> None:
        """Further choices of a workload, those that are not among them."""
        new = [one for one in candidates if one.configuration not in self._places[place]]
        if not new:
            return
        choices, configurations = self._choices[place], [one.configuration for one in new]
        before = len(choices)
        self._choices[place] = choices = [*choices, *configurations]
        self._places[place].update((c, before + i) for i, c in enumerate(configurations))
        alone = slower_alone(self._alone[place], choices)[before:]
        more = _axis(self.encodings[place], configurations, alone)
        self._axes[place] = self._axes[place].extended(more)
        self._unlikely[place] = np.append(self._unlikely[place], unlikely(new, configurations))
        if self._scale is not None:
            self._traits = np.vstack([self._traits, self._scale.of(new)])
        self.shape = tuple(len(axis.codes) for axis in self._axes)


def least(numbers: Integers, count: int) -> Integers:
    """Places of the ``count`` least of some small numbers, the least first, the earliest of equals."""
    most = int(np.searchsorted(np.cumsum(np.bincount(numbers)), count))
    some = np.flatnonzero(numbers <= most)
    return np.asarray(some[np.argsort(numbers[some], kind="stable")[:count]])


def _choices(
    configurations: list[Configuration], draw: np.random.Generator, kept: Sequence[Configuration]
) -> list[Configuration]:
    if len(configurations) <= MOST:
        return configurations
    some = set(draw.choice(len(configurations), MOST, replace=False).tolist())
    wanted = set(kept)
    return [c for i, c in enumerate(configurations) if i in some or c in wanted]


def _axis(found: Encoding, choices: Sequence[Configuration], alone: Floats) -> Axis:
    """The choices of a workload; what they cost alone is a feature with a length scale of its own."""
    codes, groups = found.codes(choices), found.groups
    lengths = int(groups.max(initial=-1)) + 1
    return Axis(
        codes,
        np.hstack([found.features(codes), alone]),
        np.append(groups, np.arange(lengths, lengths + alone.shape[1])),
        found.sizes(codes),
    )


def _setting_axis(settings: Sequence[GpuSetting]) -> Axis:
    """Clocks, and power limits, are a numeric tunable each, where there is more than one."""
    columns, features = [np.zeros((len(settings), 0), dtype=np.int64)], [np.zeros((len(settings), 0))]
    for values in ([one.clock_mhz for one in settings], [one.power_limit_w for one in settings]):
        known = list(dict.fromkeys(values))
        if len(known) > 1:
            codes = np.array([known.index(value) for value in values], dtype=np.int64)[:, None]
            columns.append(codes)
            features.append(codes / (len(known) - 1))
    codes = np.hstack(columns)
    groups = np.arange(len(columns) - 1, dtype=np.int64)
    return Axis(codes, np.hstack(features), groups, np.zeros(codes.shape))
