"""What a surrogate expects of all that is left, and what it believes of blocks."""

from dataclasses import replace

import numpy as np
import pytest
from policy_driver import candidate
from tuner.policies.surrogate.gaussian import Gaussian, Posterior
from tuner.policies.surrogate.joint import MOST_SLOWDOWN, SLOWER, slowdown, unlikely
from tuner.policies.surrogate.outlook import Outlook

from tuner.model.plan import Configuration
from tuner.space.search_view import StageLaunch

GROUPS = np.array([0])


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
    posterior = Posterior(Gaussian(GROUPS, np.zeros(1), -3.0, -5.0), x)
    posterior.add(x, np.zeros(40))

    assert low <= slowdown(posterior, others, seen * others, 1.0) <= high


def test_before_anything_is_measured_the_belief_stands() -> None:
    """Of no measurements, the coefficient is the prior's."""
    posterior = Posterior(Gaussian(GROUPS, np.zeros(1), 0.0, -5.0), np.zeros((1, 1)))

    assert slowdown(posterior, np.zeros(0), np.zeros(0), 0.5) == pytest.approx(SLOWER / 0.5)
