"""What a surrogate predicts of the trials that are not measured, and what they are worth."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from scipy.special import log_ndtr

from .features import Floats, Integers
from .posterior import log_expected_improvement

MOST = 400  # trials of highest expected improvement, whose chances count: those of others are nil
STEPS = 64  # of the integral over gains
REACH = 4.0  # standard deviations within which a gain is looked for
SURE = float(np.log(0.9))  # chance to work below which a trial may well fail
WORTH = 0.001  # of the lowest cost: what may well fail has to promise so much, or stands behind all else
_BEHIND = 1e6
_SURELY = 1.0 - 1e-12


@dataclass(frozen=True)
class Proposal:
    """A trial worth measuring.

    Attributes:
        row: of the joint space.
        gain: expected improvement, as a fraction of the lowest cost.
        near: it is the best of some neighbours, not of all.
    """

    row: Integers
    gain: float
    near: bool = False


@dataclass(frozen=True)
class Outlook:
    """Predictions over trials that are not measured.

    Attributes:
        rows: of the joint space, shape (n, axes); at least one.
        mean: predicted responses, shape (n,).
        deviation: their standard deviations, shape (n,).
        works: logarithms of the chances not to fail, shape (n,).
        target: response of the lowest cost.
        scale: of the responses: so much of a logarithm is one.
    """

    rows: Integers
    mean: Floats
    deviation: Floats
    works: Floats
    target: float
    scale: float

    @cached_property
    def log_gain(self) -> Floats:
        """Logarithms of expected improvement times chance to work, in responses, shape (n,).

        What may well fail and promises next to nothing stands behind everything else.
        """
        gains = log_expected_improvement(self.mean, self.deviation, self.target) + self.works
        vain = (self.works < SURE) & (gains < np.log(WORTH / self.scale))
        return np.asarray(np.where(vain, gains - _BEHIND, gains))

    @property
    def in_vain(self) -> bool:
        """Whether all may well fail, and none promises enough for that."""
        return bool(self.log_gain.max() < -0.5 * _BEHIND)

    @property
    def best(self) -> Proposal:
        """The trial of highest expected improvement times chance to work."""
        place = int(np.argmax(self.log_gain))
        return Proposal(self.rows[place], self._relative(float(self.log_gain[place])))

    def first(self, count: int) -> list[Integers]:
        """The ``count`` trials of highest expected improvement, the highest first."""
        return list(self.rows[self._highest(count)])

    @cached_property
    def expected_gain(self) -> float:
        """Expected gain of measuring all, as a fraction of the lowest cost.

        The integral over gains of the chance that some trial gains more; trials are taken as independent, so
        that it is too high where they are alike, and has to be calibrated.
        """
        chosen = self._highest(MOST)
        mean, deviation, works = self.mean[chosen], self.deviation[chosen], np.exp(self.works[chosen])
        furthest = float(np.max(self.target - mean + REACH * deviation))
        if furthest <= 0.0:
            return self._relative(float(self.log_gain[chosen[0]]))
        gains = np.linspace(0.0, furthest, STEPS + 1)
        chances = np.exp(log_ndtr((self.target - gains[:, None] - mean) / deviation)) * works
        none = np.exp(np.log1p(-np.minimum(chances, _SURELY)).sum(axis=1))
        some = 1.0 - none
        step = furthest / STEPS
        return float(step * (some.sum() - 0.5 * (some[0] + some[-1])) * self.scale)

    def _highest(self, count: int) -> Integers:
        """Places of the trials of highest expected improvement, the highest first, the earliest of equals."""
        loss = -self.log_gain
        if count >= len(loss):
            return np.argsort(loss, kind="stable")
        some = np.flatnonzero(loss <= np.partition(loss, count - 1)[count - 1])
        return np.asarray(some[np.argsort(loss[some], kind="stable")[:count]])

    def _relative(self, log_gain: float) -> float:
        """A gain as a fraction of the lowest cost: responses below the bend are logarithms over a scale."""
        return float(np.exp(min(log_gain, 50.0)) * self.scale)
