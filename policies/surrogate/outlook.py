"""Predictions of a surrogate for trials that are not measured, and what these are worth."""

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tuner.model.trial import non_dominated

from .features import Floats, Integers
from .gaussian import cholesky, log_expected_improvement

# --- The hypervolume of a Pareto front of two costs, and what a trial is expected to add to it.
#
# Both costs are minimised. The hypervolume is the area that a front dominates below a reference point: see
# Zitzler and Thiele, "Multiobjective Evolutionary Algorithms: A Comparative Case Study and the Strength
# Pareto Approach" (1999).


def front_of(points: Floats) -> Floats:
    """The points that no other one dominates, by ascending first cost, shape (k, 2).

    Args:
        points: shape (n, 2).
    """
    return np.asarray(points[non_dominated([(float(a), float(b)) for a, b in points])]).reshape(-1, 2)


def hypervolume(points: Floats, reference: Floats) -> float:
    """The area that points dominate below a reference point.

    Args:
        points: shape (n, 2); they need not be a front.
        reference: shape (2,); points beyond it add nothing.
    """
    front = front_of(points[(points < reference).all(axis=1)])
    if not len(front):
        return 0.0
    ends = np.append(front[1:, 0], reference[0])
    return float(np.sum((ends - front[:, 0]) * (reference[1] - front[:, 1])))


def log_expected_hypervolume_improvement(
    mean: Floats, deviation: Floats, front: Floats, reference: Floats
) -> Floats:
    """Logarithm of the expected growth of the hypervolume by one more point, exact for two costs.

    Of a front a_1 < ... < a_n, b_1 > ... > b_n, what it does not dominate is n + 1 strips
    [a_i, a_{i+1}] x (-oo, b_i], with a_0 = -oo, a_{n+1} and b_0 the reference. A point (u, v) adds to strip i
    ((a_{i+1} - u)+ - (a_i - u)+) (b_i - v)+, and as u and v are independent normal, its expectation is
    (EI(a_{i+1}) - EI(a_i)) EI(b_i), with the expected improvements of u below the ends and of v below b_i.
    See Yang, Emmerich, Deutz and Baeck, "Efficient computation of expected hypervolume improvement using box
    decomposition algorithms" (2019). Logarithms stay finite where the expectation underflows.

    Args:
        mean: of the predicted costs, shape (m, 2).
        deviation: of the predicted costs, positive, shape (m, 2).
        front: non-dominated points by ascending first cost, shape (n, 2).
        reference: shape (2,).

    Returns:
        Shape (m,).
    """
    inside = front[(front < reference).all(axis=1)]
    ends, tops = np.append(inside[:, 0], reference[0]), np.append(reference[1], inside[:, 1])
    # EI at every end and top, shape (n + 1, m)
    below = np.stack([log_expected_improvement(mean[:, 0], deviation[:, 0], float(end)) for end in ends])
    under = np.stack([log_expected_improvement(mean[:, 1], deviation[:, 1], float(top)) for top in tops])
    strips = below.copy()
    share = np.exp(np.minimum(below[:-1] - below[1:], 0.0))  # EI(a_i) by EI(a_{i+1})
    with np.errstate(divide="ignore"):  # a strip too narrow to be told from none adds nothing
        strips[1:] += np.log1p(-share)
    return np.asarray(np.logaddexp.reduce(strips + under, axis=0))


# --- The outlook of a search, and its proposals.

MOST = 256  # trials of highest expected improvement, whose chances count: those of others are nil
DRAWS = 512  # of the costs of all of them together
SURE = float(np.log(0.9))  # chance to work below which a trial may well fail
WORTH = 0.001  # of the lowest cost: what may well fail has to promise so much, or stands behind all else
_BEHIND = 1e6


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
        covariance: of the predicted signal between the trials at some places, shape (places, places).
    """

    rows: Integers
    mean: Floats
    deviation: Floats
    works: Floats
    target: float
    scale: float
    covariance: Callable[[Integers], Floats]

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
        """True if all may well fail, and none promises enough for that."""
        return bool(self.log_gain.max() < -0.5 * _BEHIND)

    @property
    def best(self) -> Proposal:
        """The trial of highest expected improvement times chance to work."""
        best = int(np.argmax(self.log_gain))
        return Proposal(self.rows[best], self._relative(float(self.log_gain[best])))

    def first(self, count: int) -> list[Integers]:
        """The ``count`` trials of highest expected improvement, the highest first."""
        return list(self.rows[self._highest(count)])

    def expected_gain(self, *, unexplained: bool = True) -> float:
        """Expected gain of measuring all, as a fraction of the lowest cost.

        The mean over draws of all trials together, so that those that are alike count once.

        Args:
            unexplained: with what tunables do not explain. No prediction leads there, and of a rough space it
                promises some gain for ever.
        """
        chosen, draw = self._highest(MOST), np.random.default_rng(0)
        covariance = self.covariance(chosen)
        if unexplained:
            own = self.deviation[chosen] ** 2 - np.diag(covariance)
            covariance = covariance + np.diag(np.maximum(own, 0.0))
        drawn = cholesky(covariance) @ draw.standard_normal((len(chosen), DRAWS))
        drawn += self.mean[chosen, None]
        fails = draw.random(drawn.shape) >= np.exp(self.works[chosen, None])
        lowest = np.where(fails, np.inf, drawn).min(axis=0)
        return float(-np.expm1(-np.maximum(self.target - lowest, 0.0) * self.scale).mean())

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
