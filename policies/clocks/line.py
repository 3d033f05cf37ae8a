"""One trial's configurations at every clock: what was measured, and which clocks are worth a measurement."""

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import replace

from tuner.model.trial import Energy, FlagKind, Measurement, Status, Trial
from tuner.space.search_view import Search

from ..descent import too_slow
from .model import LEAST_POINTS, ClockModel

SHARES = (1.0, 0.75, 0.55, 0.4)
"""Of the highest clock: those that a line is measured at before anything is known of it."""

BELOW = 0.77
"""Of a clock that is known to be good: the one below it that tells how the curve goes on."""

APART = 0.12
"""Of natural logarithms: clocks nearer to each other tell no more of the curve than one of them."""

FEW = 5
"""Clocks that are all measured: a model would need as many."""

MOST = 12
"""Clocks of one line that are measured at most."""

GAIN = 0.005
"""Relative gain that makes a clock worth a measurement: so far apart two windows of a trial may lie."""

TELLING = 0.01
"""By so much a neighbour is to cost more, as modelled, so that paired repeats can tell."""

_OFF = frozenset({FlagKind.THROTTLED, FlagKind.OFF_CLOCK})
_CLEARLY = 3.0  # times `TELLING`: a neighbour that costs no more than this brackets the best one, too
_UNSURE = 1.0  # standard uncertainties by which both time and joules of a clock may be below the expected


class ClockLine:
    """The clocks of one trial's configurations.

    Args:
        search: its clocks, cost, and what is known beforehand.
        trial: whose configurations; at any clock.
        known: what was measured so far; grows while the line is measured.
    """

    def __init__(self, search: Search, trial: Trial, known: Mapping[Trial, Measurement]) -> None:
        self._search, self._trial, self._known = search, trial, known

    def settle(self, start_mhz: int | None = None) -> Generator[list[Trial], list[Measurement], None]:
        """Measure a few clocks, then those that may be the cheapest, until the best one has neighbours.

        Args:
            start_mhz: a clock that is known to be good for something similar; None for no such knowledge.
        """
        for mhz in self._first(start_mhz):
            yield [self.at(mhz)]
        while len(self.measured) < MOST and (promising := self.promising()) is not None:
            yield [self.at(promising)]

    def at(self, mhz: int) -> Trial:
        """The trial at a clock."""
        return replace(self._trial, clock_mhz=mhz)

    @property
    def measured(self) -> dict[int, Measurement]:
        """What was measured of it, by clock, highest first."""
        trials = ((mhz, self.at(mhz)) for mhz in self._search.clocks_mhz)
        found = {mhz: self._known.get(one, self._search.prior.get(one)) for mhz, one in trials}
        return {mhz: one for mhz, one in found.items() if one is not None}

    @property
    def is_modelled(self) -> bool:
        """True where enough clocks have a time, and joules where any has them, for a model of the others."""
        points = fit_points(self.measured)
        joules = [mhz for mhz, one in points if one.energy is not None]
        return len(set(joules or [mhz for mhz, _ in points])) >= LEAST_POINTS

    def promising(self) -> int | None:
        """The unmeasured clock that is most likely the cheapest, or that brackets the best; None for none."""
        measured = self.measured
        costs = {mhz: self._search.cost(one) for mhz, one in measured.items()}
        best = min(costs, key=costs.__getitem__, default=None)
        points = fit_points(measured)
        if best is None or costs[best] == math.inf:
            return None
        if len({mhz for mhz, _ in points}) < LEAST_POINTS:
            return self._middle(points)
        model = _ModelledCosts(self._search, ClockModel(points), measured[best])
        highest = _ceiling(measured)
        open_mhz = [mhz for mhz in self._search.clocks_mhz if mhz not in measured and mhz <= highest]
        if not open_mhz:
            return None
        (smoothed, _), *_ = model.at([best])
        lowest = smoothed if math.isfinite(smoothed) else costs[best]
        found = [
            (mean, least, mhz)
            for mhz, (mean, least) in zip(open_mhz, model.at(open_mhz), strict=True)
            if least < (1.0 - GAIN) * lowest and self._pays(lowest - least)
        ]
        if found:
            return min(found)[2]
        return self._neighbour(best, lowest, open_mhz, model)

    def _first(self, start_mhz: int | None) -> Iterator[int]:
        """The clocks a line begins with, from the highest down while that is not too slow."""
        clocks = self._search.clocks_mhz
        if start_mhz is not None:
            start_mhz = round(min(start_mhz, _ceiling(self.measured)))
        shares = SHARES if start_mhz is None else (1.0, start_mhz / clocks[0], BELOW * start_mhz / clocks[0])
        wanted = {min(clocks, key=lambda mhz: abs(mhz - share * clocks[0])) for share in shares}
        for mhz in clocks if len(clocks) <= FEW else sorted(wanted, reverse=True):
            measured = self.measured
            near = any(abs(math.log(mhz / other)) < APART for other in measured)
            if mhz not in measured and (not near or mhz == clocks[0] or len(clocks) <= FEW):
                yield mhz
            found = self.measured.get(mhz)
            if found is not None and too_slow(found, self._search.cost):
                return

    def _middle(self, points: Sequence[tuple[float, Measurement]]) -> int | None:
        """The clock that is farthest from those measured, where they are too few for a model.

        It lies between them, or a bit below the only one.
        """
        had = {mhz for mhz, _ in points}
        if not had:
            return None
        least = min(had) * (BELOW if len(had) == 1 else 1.0)
        measured = self.measured
        highest = min(_ceiling(measured), max(had))
        open_mhz = [mhz for mhz in self._search.clocks_mhz if least <= mhz <= highest and mhz not in measured]
        return max(open_mhz, key=lambda mhz: min(abs(math.log(mhz / one)) for one in had), default=None)

    def _pays(self, gain: float) -> bool:
        """Whether a measurement that may gain so much pays for itself; true where nobody asked."""
        payback = self._search.payback
        if payback is None:
            return True
        spent = [payback.spent(one) for one in self.measured.values()]
        return gain * payback.runs > math.fsum(spent) / len(spent)

    def _neighbour(
        self, best: int, lowest: float, open_mhz: Sequence[int], model: "_ModelledCosts"
    ) -> int | None:
        """A clock beside the best one that can be told from it; None where both are known."""
        for side in (sorted(mhz for mhz in open_mhz if mhz > best), [mhz for mhz in open_mhz if mhz < best]):
            if not side:
                continue
            upward = side[0] > best
            known = [mhz for mhz in self.measured if (mhz > best) is upward and mhz != best]
            nearest = min(known, key=lambda mhz: abs(mhz - best), default=None)
            if nearest is not None and model.at([nearest])[0][0] <= (1.0 + _CLEARLY * TELLING) * lowest:
                continue
            means = [mean for mean, _ in model.at(side)]
            telling = next(
                (mhz for mhz, mean in zip(side, means, strict=True) if mean >= (1.0 + TELLING) * lowest),
                side[-1],
            )
            if nearest is None or abs(telling - best) < abs(nearest - best):
                return telling
        return None


def fit_points(measured: Mapping[int, Measurement]) -> list[tuple[float, Measurement]]:
    """What a model is fitted to: valid trials, those of a GPU that was held back at the clock it had.

    Args:
        measured: by the clock that was set, in MHz.
    """
    return [
        (clock, one)
        for mhz, one in measured.items()
        if one.status is Status.OK and one.makespan_s and (clock := _had(mhz, one)) is not None
    ]


def _ceiling(measured: Mapping[int, Measurement]) -> float:
    """The clock above which the GPU runs into its power limit, whatever is set; infinity for none."""
    limited = [(mhz, _had(mhz, one)) for mhz, one in measured.items() if one.at_power_limit]
    return min((mhz - 1 if had is None else had for mhz, had in limited), default=math.inf)


def _had(mhz: int, measurement: Measurement) -> float | None:
    """The clock of a trial: as set, or as seen where another was; None where that is not known."""
    if not measurement.spoilt & _OFF:
        return float(mhz)
    seen = measurement.clock_mhz
    return seen if seen is not None and 0.0 < seen <= mhz else None


class _ModelledCosts:
    """What rounds at clocks that were not measured probably cost, under the objective and bounds of a run."""

    def __init__(self, search: Search, model: ClockModel, template: Measurement) -> None:
        self._search, self._model, self._template = search, model, template

    def at(self, clocks_mhz: Sequence[int]) -> list[tuple[float, float]]:
        """Expected costs, and what they may be below: both time and joules a standard uncertainty lower."""
        found = self._model.at(clocks_mhz)
        rows = zip(found.time_s, found.time_relative, found.joules, found.joules_relative, strict=True)
        return [
            (
                self._cost(time_s, joules),
                self._cost(
                    time_s * max(0.0, 1.0 - _UNSURE * unsure_time),
                    joules * max(0.0, 1.0 - _UNSURE * unsure_joules),
                ),
            )
            for time_s, unsure_time, joules, unsure_joules in rows
        ]

    def _cost(self, time_s: float, joules: float) -> float:
        energy = None
        if math.isfinite(joules) and time_s > 0.0:
            energy = Energy(float(joules), 0.0, float(joules / time_s), "", "")
        modelled = replace(self._template, makespan_s=float(time_s), energy=energy, estimated_j=None)
        return self._search.cost(modelled)
