"""The Gaussian process against closed forms, its further tasks, and what is expected of what is left."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import candidate, search_over
from scipy.optimize import approx_fprime
from tuner.policies.surrogate import gaussian
from tuner.policies.surrogate.gaussian import Gaussian, Posterior, by_pair, cholesky, matern, squared
from tuner.policies.surrogate.joint import MOST_SLOWDOWN, SLOWER, Joint, slowdown, unlikely
from tuner.policies.surrogate.learner import MEAN, POINTS, SOURCES, best_known, learnt, nearest, of_task
from tuner.policies.surrogate.outlook import Outlook

from tuner.model.plan import Configuration
from tuner.space.search_view import Candidate, PriorRun, Search, StageLaunch

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


# --- What is learnt from other runs, as further tasks of the surrogate.


def space() -> list[Candidate]:
    return [candidate(L=1 << i, P=p) for i in range(5, 11) for p in (2, 4, 8)]


def known(n: int, device: str = "here", count: int = 18, workload: int = 0) -> PriorRun:
    chosen = [c.configuration for c in space()][:count]
    return PriorRun(workload, {"N": n}, device, tuple((c, 1.0 + i) for i, c in enumerate(chosen)))


def searching(*sources: PriorRun) -> Search:
    return replace(search_over(space()), sizes=({"N": 1024},), device="here", prior_runs=sources)


def test_the_nearest_sizes_on_the_same_gpu_are_learnt_from() -> None:
    """Runs elsewhere come last, then far sizes; those of hardly any points not at all."""
    runs = [known(2**i) for i in (6, 8, 12, 13, 11)] + [known(512, count=2), known(1024, "there")]

    chosen = nearest(searching(*runs))

    assert len(chosen) == SOURCES
    assert [source.sizes["N"] for source in chosen] == [2048, 256, 4096, 8192]
    assert all(source.device == "here" for source in chosen)


def test_a_joint_space_learns_from_no_single_workload() -> None:
    """Runs of one workload are no task of a joint space; their best is only a place to start."""
    search = replace(search_over(space(), space()), prior_runs=(known(64), known(64, workload=1)))

    assert not nearest(search)
    assert best_known(search, 1) == space()[0].configuration


def test_a_best_configuration_that_is_not_legal_here_is_passed_over() -> None:
    """The best known is the best of those that the space has."""
    run = PriorRun(0, {"N": 1}, "", ((Configuration({"L": 3, "P": 2}), 0.5), (space()[4].configuration, 0.7)))

    assert best_known(searching(run), 0) == space()[4].configuration
    assert best_known(searching(), 0) is None


def test_points_are_few_and_standardised() -> None:
    """Of every run its best and some others; failures left out; values this space lacks are understood."""
    strange = (Configuration({"L": 4096, "P": 2}), 0.5)
    failed = (Configuration({"L": 8192, "P": 2}), math.inf)
    many = PriorRun(
        0,
        {"N": 64},
        "",
        (strange, failed, *((Configuration({"L": i, "P": 2}), 9.0 + i) for i in range(1, 99))),
    )
    search = searching(many, known(2048))
    draw = np.random.default_rng(0)

    knowledge = learnt(nearest(search), Joint(search, draw, [], search.prior_runs), draw)

    assert knowledge is not None
    assert knowledge.tasks == 3
    far, near = (knowledge.x[:, task - 4] > 0 for task in (2, 1))  # behind the features: three tasks, and 1
    assert far.sum() == POINTS  # it has more than are used
    assert knowledge.y[far].min() == pytest.approx(knowledge.y[far][0])
    assert np.all(np.isfinite(knowledge.x))
    assert np.all(np.isfinite(knowledge.y))
    assert knowledge.y[near].std() == pytest.approx(1.0)


def test_a_task_that_says_the_opposite_is_hardly_listened_to() -> None:
    """Of two tasks, the one that the target follows tells of what the target has not seen."""
    draw = np.random.default_rng(3)
    x = np.linspace(0.0, 1.0, 24)[:, None]
    curve = np.sin(6.0 * x[:, 0])
    few = draw.choice(24, 8, replace=False)
    rows = np.vstack(
        [np.hstack([x[few], of_task(0, 8, 3)]), *(np.hstack([x, of_task(t, 24, 3)]) for t in (1, 2))]
    )
    y = np.concatenate([curve[few], curve, -curve])

    fitted = gaussian.fit(gaussian.prior(np.arange(4), np.array([MEAN])), rows, y, np.zeros(len(y)))

    target, same, opposite = (np.append([0.5], of_task(task, 1, 3)) for task in range(3))
    alike = fitted.alike(np.vstack([target, same, opposite]))[0]
    assert alike[1] > 2 * abs(alike[2])


# --- What a surrogate expects of all that is left, and what it believes of blocks.

OUTLOOK_GROUPS = np.array([0])


def outlook(mean: list[float], deviation: list[float], works: list[float] | None = None) -> Outlook:
    """Predictions over as many trials; the lowest response is 0, and one is 0.1 of a logarithm."""
    chances = np.ones(len(mean)) if works is None else np.array(works)
    rows, variances = np.arange(len(mean))[:, None], np.square(deviation)
    return Outlook(
        rows,
        np.array(mean),
        np.array(deviation),
        np.log(chances),
        0.0,
        0.1,
        lambda at: np.diag(variances[at]),
    )


def test_of_one_trial_all_are_expected_to_gain_its_expected_improvement() -> None:
    """Draws give the closed form, within what so many can tell."""
    one = outlook([0.5], [1.0])

    assert one.expected_gain() == pytest.approx(one.best.gain, rel=0.15)


def test_the_expected_gain_of_all_is_that_of_draws() -> None:
    """Of independent trials, some of which may fail: the mean of the largest gain of many draws."""
    mean, deviation, works = [0.0, 0.5, 1.0, -0.2], [0.3, 1.0, 2.0, 0.1], [1.0, 0.8, 0.5, 1.0]
    draw = np.random.default_rng(7)
    values = np.array(mean) + np.array(deviation) * draw.standard_normal((200_000, 4))
    gains = np.where(draw.random((200_000, 4)) < works, np.maximum(-values, 0.0), 0.0)

    found = outlook(mean, deviation, works).expected_gain()

    assert found == pytest.approx(-np.expm1(-0.1 * gains.max(axis=1)).mean(), rel=0.1)


def test_trials_that_are_alike_promise_what_one_of_them_does() -> None:
    """A hundred trials of one signal are worth one; as many that tell nothing of each other, more."""
    apart = outlook([0.5] * 100, [1.0] * 100)
    alike = replace(apart, covariance=lambda at: np.ones((len(at), len(at))))

    assert alike.expected_gain() == pytest.approx(outlook([0.5], [1.0]).expected_gain(), rel=0.2)
    assert alike.expected_gain() < apart.expected_gain() / 3


def test_what_no_tunable_explains_promises_nothing() -> None:
    """Where the signal is known, what every trial has of its own is no reason to go on."""
    known = replace(outlook([1.0, 1.2], [1.0, 1.0]), covariance=lambda at: 1e-9 * np.eye(len(at)))

    assert known.expected_gain(unexplained=False) < 1e-6 < known.expected_gain()


def test_more_to_measure_never_promises_less() -> None:
    """Another trial adds to what is expected, at most its own improvement."""
    few, more = outlook([0.1, 0.4], [0.5, 0.5]), outlook([0.1, 0.4, 0.2], [0.5, 0.5, 0.5])

    own = outlook([0.2], [0.5]).expected_gain()
    assert few.expected_gain() < more.expected_gain() < few.expected_gain() + own


def test_hopeless_trials_promise_nothing() -> None:
    """Far above the lowest response, the gain is nil, and a number."""
    assert 0.0 <= outlook([40.0, 50.0], [1.0, 1.0]).expected_gain() < 1e-12


def test_what_may_well_fail_has_to_promise_something() -> None:
    """Where next to nothing is to be gained, what works goes first; a large gain is worth a failure."""
    little, much = ([2.0, 3.0], [0.3, 0.3]), ([-2.0, 3.0], [0.3, 0.3])

    assert outlook(*little, [0.3, 1.0]).best.row == 1
    assert outlook(*much, [0.3, 1.0]).best.row == 0


def test_where_all_may_well_fail_the_most_promising_goes_first() -> None:
    """And it is said that all are in vain; nothing is ruled out."""
    found = outlook([2.0, 1.0], [0.3, 0.3], [0.3, 0.3])

    assert found.in_vain
    assert found.best.row == 1


@pytest.mark.parametrize(
    ("x", "y", "slow"),
    [(32, 8, 0.0), (16, 4, 0.0), (128, 8, 1.0), (48, 4, 1.0), (16, 1, 1.0)],
    ids=["256", "64", "1024", "192", "16"],
)
def test_blocks_of_64_to_512_threads_are_likely(x: int, y: int, slow: float) -> None:
    """A power of two among these, by the product of the block's tunables."""
    one = candidate(block_size_x=x, block_size_y=y, tile=3)

    assert unlikely([one], [one.configuration]) == [slow]


def test_nothing_is_believed_of_blocks_that_are_known_or_have_no_name() -> None:
    """Launches tell more, and tunables of other names tell nothing."""
    configuration = Configuration({"block_size_x": 1024})
    known = candidate(block_size_x=1024)
    launch = StageLaunch(1, 1024, 0, 32, 1.0, 2, 64)

    assert unlikely([type(known)(configuration, 1.0, 1024, 2, 64, launches=(launch,))], [configuration]) == [
        0.0
    ]
    assert unlikely([candidate(L=1024)], [Configuration({"L": 1024})]) == [0.0]


@pytest.mark.parametrize(
    ("seen", "low", "high"), [(0.0, 0.0, 0.1), (0.2, 0.15, 0.25), (2.0, MOST_SLOWDOWN, MOST_SLOWDOWN)]
)
def test_how_much_slower_blocks_are_is_learnt(seen: float, low: float, high: float) -> None:
    """The belief gives way to many measurements, between nothing and the most."""
    x = np.linspace(0.0, 1.0, 40)[:, None]
    others = np.tile([0.0, 1.0], 20)
    posterior = Posterior(Gaussian(OUTLOOK_GROUPS, np.zeros(1), -3.0, -5.0), x)
    posterior.add(x, np.zeros(40))

    assert low <= slowdown(posterior, others, seen * others, 1.0) <= high


def test_before_anything_is_measured_the_belief_stands() -> None:
    """Of no measurements, the coefficient is the prior's."""
    posterior = Posterior(Gaussian(OUTLOOK_GROUPS, np.zeros(1), 0.0, -5.0), np.zeros((1, 1)))

    assert slowdown(posterior, np.zeros(0), np.zeros(0), 0.5) == pytest.approx(SLOWER / 0.5)
