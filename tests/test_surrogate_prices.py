"""What a search learns of the seconds that trials take."""

import numpy as np
import pytest
from tuner.policies.surrogate.prices import LEAST, TrialPrices


def learnt(x: np.ndarray, seconds: np.ndarray) -> TrialPrices:
    """Prices after trials that took so many seconds, behind a first one that tells nothing."""
    prices = TrialPrices()
    ended_s = 5.0 + np.append(0.0, np.cumsum(seconds))
    for row, end_s in zip(np.vstack([x[:1], x]), ended_s, strict=True):
        prices.learn(row, float(end_s))
    return prices


def test_seconds_that_depend_on_a_tunable_are_predicted() -> None:
    """Where one end of a tunable takes eight times as long, its price is so much higher, less a little."""
    x = np.random.default_rng(0).random((30, 3))

    found = learnt(x, 0.1 * 8.0 ** x[:, 1]).of(np.array([[0.5, 1.0, 0.5], [0.5, 0.0, 0.5]]))

    assert found[0] - found[1] == pytest.approx(np.log(8.0), rel=0.2)


def test_seconds_by_chance_have_no_price() -> None:
    """Where features do not predict the seconds of trials left out, all trials cost the same."""
    draw = np.random.default_rng(1)
    x = draw.random((30, 3))

    assert not learnt(x, np.exp(draw.standard_normal(30))).of(x).any()


def test_few_trials_have_no_price() -> None:
    """Nothing is said before some seconds are known."""
    x = np.linspace(0.0, 1.0, LEAST - 1)[:, None]

    assert not learnt(x, 0.1 * 8.0 ** x[:, 0]).of(x).any()


def test_a_clock_that_went_back_tells_nothing_any_more() -> None:
    """A recording asked for in another order has no seconds of trials."""
    x = np.random.default_rng(2).random((30, 2))
    prices = learnt(x, 0.1 * 8.0 ** x[:, 0])
    before = prices.of(x).any()

    prices.learn(x[0], 1.0)

    assert before
    assert not prices.of(x).any()


def test_further_columns_are_left_out() -> None:
    """Traits and tasks behind the features do not change a price."""
    x = np.random.default_rng(3).random((30, 2))
    prices = learnt(x, 0.1 * 8.0 ** x[:, 0])

    assert prices.of(np.hstack([x, np.ones((30, 1))])) == pytest.approx(prices.of(x))
