"""The hypervolume of a Pareto front of two costs, and what a trial is expected to add to it.

Both costs are minimised. The hypervolume is the area that a front dominates below a reference point: see
Zitzler and Thiele, "Multiobjective Evolutionary Algorithms: A Comparative Case Study and the Strength Pareto
Approach" (1999).
"""

import numpy as np

from tuner.model.pareto import non_dominated

from .features import Floats
from .posterior import log_expected_improvement


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
    See Emmerich, Yang, Deutz, Wang and Fonseca, "A Multicriteria Generalization of Bayesian Global
    Optimization" (2016), section 4, and Yang, Emmerich, Deutz and Baeck, "Efficient computation of expected
    hypervolume improvement using box decomposition algorithms" (2019). Logarithms stay finite where the
    expectation underflows.

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
