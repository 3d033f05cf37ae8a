"""The linear model of coregionalisation: one Gaussian process for several related tasks.

A task is the kernel at one problem size on one GPU. Covariances are sums over latent functions q of
B_q[t, t'] k_q(x, x') with B_q = w_q w_qᵀ + diag(κ_q): what the tasks share, and what each has of its own.
The signs of w are free, so that a task may also be the opposite of another.
"""

from dataclasses import dataclass, replace

import numpy as np
import scipy

from .features import Floats, Integers
from .gaussian import (
    BOUNDS,
    ITERATIONS,
    LENGTH,
    NUGGET,
    PoolCovariance,
    by_group,
    cholesky,
    inverse,
    matern,
    slope,
    squared,
)

LATENT = 2  # functions: one that all tasks follow, and one for what sets some apart
WEIGHT = (0.7, 0.5)  # prior of w: normal; all tasks are taken to be alike until they are seen to differ
OWN = (float(np.log(0.1)), 1.0)  # prior of log κ: about a tenth of the variance is a task's own
OFFSET = 10.0  # variance of the target's mean, which its few points do not tell; others are standardised
_OWN_BOUNDS = (-7.0, 3.0)
_WEIGHT_BOUNDS = (-3.0, 3.0)


@dataclass(frozen=True)
class Coregional:
    """A fitted covariance over several tasks; the last feature of a row is the number of its task.

    Attributes:
        groups: length scale of every feature but the last.
        lengths: logarithms of the length scales, shape (latent, length scales).
        weights: w, shape (latent, tasks).
        own: log κ, shape (latent, tasks).
        nugget: logarithm of the variance of the unexplained, shape (tasks,).
    """

    groups: Integers
    lengths: Floats
    weights: Floats
    own: Floats
    nugget: Floats

    def coregionalisation(self) -> Floats:
        """B of every latent function, shape (latent, tasks, tasks)."""
        return np.stack(
            [np.outer(w, w) + np.diag(np.exp(own)) for w, own in zip(self.weights, self.own, strict=True)]
        )

    def covariance(self, a: Floats, b: Floats) -> Floats:
        """Covariance of the signal between rows of features, shape (rows of a, rows of b)."""
        of_a, of_b = _tasks(a), _tasks(b)
        total = OFFSET * np.outer(of_a == 0, of_b == 0)
        for lengths, shared in zip(self.lengths, self.coregionalisation(), strict=True):
            scales = np.exp(-lengths)[self.groups]
            total += shared[np.ix_(of_a, of_b)] * matern(squared(a[:, :-1] * scales, b[:, :-1] * scales))
        return total

    def covariance_with(self, pool: Floats) -> PoolCovariance:
        """The same with parts of a pool, in single precision."""
        return lambda x, part: self.covariance(x, pool[part]).astype(np.float32)

    def alike(self, x: Floats) -> Floats:
        """Correlation of the signal between rows of the target, its mean apart, shape (rows, rows)."""
        return np.asarray((self.covariance(x, x) - OFFSET) / (self.spread(x)[0] - OFFSET))

    def spread(self, x: Floats) -> Floats:
        """Variance of the signal at rows of features, shape (rows,)."""
        tasks = _tasks(x)
        own = np.einsum("qtt->t", self.coregionalisation())
        return np.asarray(own[tasks] + OFFSET * (tasks == 0))

    def nuggets(self, x: Floats) -> Floats:
        """Variance of the unexplained at rows of features, shape (rows,)."""
        return np.asarray(np.exp(self.nugget)[_tasks(x)])


def prior(groups: Integers, tasks: int) -> Coregional:
    """The prior's middle; the latent functions start apart, or they would stay alike."""
    lengths = np.full((LATENT, int(groups.max(initial=-1)) + 1), LENGTH[0])
    lengths += np.linspace(0.5, -0.5, LATENT)[:, None]
    weights = np.full((LATENT, tasks), WEIGHT[0])
    return Coregional(groups, lengths, weights, np.full((LATENT, tasks), OWN[0]), np.full(tasks, NUGGET[0]))


def fit(start: Coregional, x: Floats, y: Floats, noise: Floats) -> Coregional:
    """The covariance of highest posterior density, found from ``start``.

    Args:
        start: where the search begins.
        x: features, the last of which is the task, shape (n, features + 1).
        y: shape (n,), about zero mean and unit variance in every task.
        noise: known variance of each y, shape (n,).
    """
    distances = by_group(x[:, :-1], start.groups, start.lengths.shape[1])
    optimum = scipy.optimize.minimize(
        log_posterior,
        pack(start),
        args=(start, (distances, _tasks(x), y, noise)),
        jac=True,
        method="L-BFGS-B",
        bounds=[BOUNDS[0]] * start.lengths.size
        + [_WEIGHT_BOUNDS] * start.weights.size
        + [_OWN_BOUNDS] * start.own.size
        + [BOUNDS[2]] * start.nugget.size,
        options={"maxiter": ITERATIONS},
    )
    return unpack(optimum.x, start) if np.all(np.isfinite(optimum.x)) else start


def pack(model: Coregional) -> Floats:
    """The hyper-parameters as one vector."""
    return np.concatenate([model.lengths.ravel(), model.weights.ravel(), model.own.ravel(), model.nugget])


def unpack(vector: Floats, like: Coregional) -> Coregional:
    """The covariance of a vector, shaped as another is."""
    ends = np.cumsum([like.lengths.size, like.weights.size, like.own.size])
    lengths, weights, own, nugget = np.split(vector, ends)
    shape = like.weights.shape
    return replace(
        like,
        lengths=lengths.reshape(like.lengths.shape),
        weights=weights.reshape(shape),
        own=own.reshape(shape),
        nugget=nugget,
    )


def log_posterior(
    vector: Floats, like: Coregional, seen: tuple[Floats, Integers, Floats, Floats]
) -> tuple[float, Floats]:
    """Minus the log of marginal likelihood times prior, up to a constant, and its gradient.

    Args:
        vector: of `pack`.
        like: the shape of things.
        seen: squared distances per length scale, shape (length scales, n * n); per point its task, what was
            seen, and the known variance of that, each of shape (n,).
    """
    distances, tasks, y, noise = seen
    n = len(y)
    model = unpack(vector, like)
    member = np.eye(like.weights.shape[1])[tasks]
    squares = [(np.exp(-2.0 * lengths) @ distances).reshape(n, n) for lengths in model.lengths]
    shared = [member @ b @ member.T for b in model.coregionalisation()]
    correlations = [matern(r2) for r2 in squares]
    total = OFFSET * np.outer(tasks == 0, tasks == 0)
    total = total + sum(b * k for b, k in zip(shared, correlations, strict=True))
    factor = cholesky(total + np.diag(np.exp(model.nugget)[tasks] + noise))
    alpha = scipy.linalg.cho_solve((factor, True), y)
    inner = np.outer(alpha, alpha) - inverse(factor)

    lengths, weights, own = (np.empty_like(part) for part in (model.lengths, model.weights, model.own))
    for q, r2 in enumerate(squares):
        bent = (inner * shared[q] * slope(r2)).ravel()
        lengths[q] = np.exp(-2.0 * model.lengths[q]) * (distances @ bent)
        per_pair = member.T @ (inner * correlations[q]) @ member
        weights[q] = 2.0 * per_pair @ model.weights[q]
        own[q] = np.diag(per_pair) * np.exp(model.own[q])
    nugget = np.exp(model.nugget) * (member.T @ np.diag(inner))
    gradient = np.concatenate([lengths.ravel(), weights.ravel(), own.ravel(), nugget])

    value = 0.5 * y @ alpha + np.sum(np.log(np.diag(factor)))
    sizes = (model.lengths.size, model.weights.size, model.own.size, model.nugget.size)
    pairs = np.repeat([LENGTH, WEIGHT, OWN, NUGGET], sizes, axis=0)
    off = (vector - pairs[:, 0]) / pairs[:, 1]
    return float(value + 0.5 * off @ off), off / pairs[:, 1] - 0.5 * gradient


def _tasks(x: Floats) -> Integers:
    return x[:, -1].astype(np.int64)
