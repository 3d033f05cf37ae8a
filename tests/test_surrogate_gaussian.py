"""The Gaussian process against closed forms."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import approx_fprime
from tuner.policies.surrogate import gaussian
from tuner.policies.surrogate.gaussian import (
    Gaussian,
    Posterior,
    by_pair,
    cholesky,
    matern,
    squared,
)

GROUPS = np.array([0, 1, 1, 2])


def points(count: int, seed: int = 0) -> np.ndarray:
    return np.random.default_rng(seed).random((count, len(GROUPS)))


def model() -> Gaussian:
    return Gaussian(GROUPS, np.array([0.3, -0.4, 0.1]), 0.2, -4.0)


def test_the_kernel_is_matern_with_five_halves() -> None:
    """At a distance r it is (1 + √5 r + 5/3 r²) exp(-√5 r), and 1 at none."""
    r = np.array([0.0, 0.5, 2.0])

    expected = (1 + np.sqrt(5) * r + 5 * r**2 / 3) * np.exp(-np.sqrt(5) * r)

    assert matern(r**2) == pytest.approx(expected)


def test_distances_of_pairs_are_those_below_the_diagonal() -> None:
    """Features of a group share its distance; a fit looks at each pair once, as pairs stand in a matrix."""
    x = points(6)

    assert by_pair(x, GROUPS, 3).sum(axis=0) == pytest.approx(squared(x, x).ravel()[gaussian.pairs(6)])


@pytest.mark.parametrize("doubts", [np.zeros(0), np.array([0.5, 2.0])])
def test_a_part_of_a_pool_has_the_covariance_of_its_rows(doubts: np.ndarray) -> None:
    """In single precision it is what whole rows give, with doubtful coefficients and without."""
    linear = np.random.default_rng(2).random((9, len(doubts)))
    pool = np.hstack([points(9), linear])
    one = Gaussian(GROUPS, np.array([0.3, -0.4, 0.1]), 0.2, -4.0, doubts)

    found = one.covariance_with(pool)(pool[:2], slice(3, 8))

    assert found == pytest.approx(one.covariance(pool[:2], pool[3:8]), abs=1e-5)


@pytest.mark.parametrize("asked_between", [False, True])
def test_the_posterior_is_the_textbook_one(asked_between: bool) -> None:
    """Mean k'(K + N)⁻¹y and variance k(x, x) - k'(K + N)⁻¹k and the nugget, however the points came in."""
    seen, asked, noise = points(9), points(5, seed=1), np.linspace(0.01, 0.1, 9)
    y = np.sin(3 * seen.sum(axis=1))
    found = model()
    inner = found.covariance(seen, seen) + np.diag(np.exp(found.nugget) + noise)
    cross = found.covariance(seen, asked)
    solved = np.linalg.solve(inner, cross)

    posterior = Posterior(found, asked)
    for part in (slice(0, 4), slice(4, 5), slice(5, 9)):
        posterior.add(seen[part], noise[part])
        if asked_between:
            posterior.predict(y[: part.stop])

    for mean, deviation in (posterior.predict(y), posterior.predict_at(asked, y)):
        assert mean == pytest.approx(solved.T @ y, abs=1e-5)  # over the pool in single precision
        signal = found.spread(asked) - np.sum(cross * solved, axis=0)
        assert deviation**2 == pytest.approx(signal + np.exp(found.nugget), abs=1e-5)


def test_it_passes_through_what_was_seen_without_noise() -> None:
    """Hardly any nugget and no noise: the mean at a measured point is what was measured."""
    seen = points(7)
    y = np.arange(7.0)
    posterior = Posterior(Gaussian(GROUPS, np.zeros(3), 0.0, -16.0), seen)
    posterior.add(seen, np.zeros(7))

    mean, deviation = posterior.predict(y)

    assert mean == pytest.approx(y, abs=1e-3)
    assert deviation.max() < 1e-2


def test_noise_that_is_known_is_not_believed() -> None:
    """Of two values at one place, the mean stays near the one with the smaller uncertainty."""
    place = points(1)
    posterior = Posterior(model(), place)
    posterior.add(np.vstack([place, place]), np.array([1e-4, 10.0]))

    mean, _ = posterior.predict(np.array([1.0, -1.0]))

    assert mean[0] > 0.9


@pytest.mark.parametrize("shift", [0.0, 0.7])
def test_the_gradient_of_the_fit_is_that_of_its_value(shift: float) -> None:
    """Analytic and finite differences agree in every hyper-parameter."""
    x = points(12)
    y = np.cos(4 * x[:, 0]) + x[:, 3]
    seen = (by_pair(x, GROUPS, 3), y, np.diag(np.full(12, 0.01)))
    vector = np.array([0.2, -0.5, 0.4, 0.1, -3.0]) + shift

    _, gradient = gaussian.log_posterior(vector, *seen)

    assert gradient == pytest.approx(
        approx_fprime(vector, lambda v: gaussian.log_posterior(v, *seen)[0], 1e-6), rel=1e-3, abs=1e-3
    )


def test_the_value_of_the_fit_is_the_marginal_likelihood() -> None:
    """Differences between two hyper-parameters are those of normal densities and of the prior."""
    from scipy.stats import multivariate_normal  # noqa: PLC0415 - takes a third of a second, of one process

    x, noise = points(8), np.full(8, 0.02)
    y = np.sin(5 * x[:, 1])
    values, expected = [], []
    for variance in (0.0, 0.5):
        one = Gaussian(GROUPS, np.zeros(3), variance, -3.0)
        matrix = one.covariance(x, x) + np.diag(np.exp(one.nugget) + noise)
        off = (variance - gaussian.VARIANCE[0]) / gaussian.VARIANCE[1]
        expected.append(multivariate_normal(np.zeros(8), matrix).logpdf(y) - off**2 / 2)
        vector = np.append(one.lengths, [one.variance, one.nugget])
        values.append(gaussian.log_posterior(vector, by_pair(x, GROUPS, 3), y, np.diag(noise))[0])

    assert values[0] - values[1] == pytest.approx(expected[1] - expected[0])


def test_a_fit_tells_what_matters_from_what_does_not() -> None:
    """The tunable that costs depend on gets the shortest length scale."""
    x = points(40)
    y = np.sin(6 * x[:, 0])

    fitted = gaussian.fit(gaussian.prior(GROUPS), x, (y - y.mean()) / y.std(), np.zeros(40))

    assert np.argmin(fitted.lengths) == 0
    assert fitted.lengths[0] < fitted.lengths[1:].min() - 0.5


def test_a_fit_of_equal_costs_is_finite() -> None:
    """Constant responses leave hyper-parameters that can be used."""
    fitted = gaussian.fit(gaussian.prior(GROUPS), points(10), np.zeros(10), np.zeros(10))

    assert np.all(np.isfinite([*fitted.lengths, fitted.variance, fitted.nugget]))


@given(
    st.lists(st.floats(-1e6, 1e6), min_size=9, max_size=9) | st.just([0.0] * 9) | st.just([float("nan")] * 9)
)
def test_any_symmetric_matrix_gets_a_factor(values: list[float]) -> None:
    """Indefinite, singular or not even numbers: a lower factor with a positive diagonal, never an error."""
    matrix = np.array(values).reshape(3, 3)

    factor = cholesky(matrix + matrix.T)

    assert np.all(np.isfinite(factor))
    assert np.all(np.diag(factor) > 0)
    assert np.all(np.triu(factor, 1) == 0)


def test_a_definite_matrix_gets_its_own_factor() -> None:
    """Where no jitter is needed, none is added."""
    x = points(5)
    matrix = x @ x.T + np.eye(5)

    factor = cholesky(matrix)

    assert factor @ factor.T == pytest.approx(matrix)


def test_a_noisy_reading_is_drawn_to_what_its_like_read() -> None:
    """A lucky reading among like ones is corrected, a sure one stays, as the whole posterior says."""
    seen, noise = points(9), np.array([*[0.3] * 8, 0.0])
    y = np.array([-2.0, *[0.1] * 7, 0.5])
    posterior = Posterior(model(), seen)
    posterior.add(seen, noise)

    found = posterior.without_noise(y, noise)

    signal = model().covariance(seen, seen) + np.exp(model().nugget) * np.eye(len(seen))
    assert found == pytest.approx(signal @ np.linalg.solve(signal + np.diag(noise), y))
    assert found[0] > -1.9
    assert found[8] == pytest.approx(0.5)
