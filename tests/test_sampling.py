"""The policies that draw from the joint space: exhaustive and random."""

from collections import Counter
from itertools import product

from hypothesis import given
from hypothesis import strategies as st
from policy_driver import blocks, play, result, search_over
from tuner.policies.independent import CHUNK

from tuner.model import registry
from tuner.model.trial import Measurement, Trial

exhaustive = registry.load("policy", "exhaustive")
random_sampling = registry.load("policy", "random")

SPACES = (blocks(1024, 512, 256), blocks(512, 256))
CLOCKS = (875, 810)
EVERYTHING = {Trial((a.configuration, b.configuration), clock) for a, b, clock in product(*SPACES, CLOCKS)}


def constant(trial: Trial) -> Measurement:
    return result(1.0, [1.0] * len(trial.configurations))


@given(st.lists(st.floats(0, 1e9), min_size=12, max_size=12))
def test_both_find_the_minimum_of_the_whole_space(costs: list[float]) -> None:
    """Left to run to their end, both visit every trial once and return the cheapest."""
    table = dict(zip(sorted(EVERYTHING, key=str), costs, strict=True))
    for policy in (exhaustive, random_sampling):
        played = play(
            policy, search_over(*SPACES, clocks=CLOCKS), lambda trial: result(table[trial], [1.0, 1.0])
        )

        assert sorted(played.trials, key=str) == list(table)
        assert table[played.best] == min(costs)  # type: ignore[index]


def test_exhaustive_changes_the_clock_last() -> None:
    """Setting a clock takes longest: all sets of configurations at one clock, then the next clock."""
    played = play(exhaustive, search_over(*SPACES, clocks=CLOCKS), constant)

    assert [trial.clock_mhz for trial in played.trials] == [875] * 6 + [810] * 6


def test_trials_come_in_chunks() -> None:
    """A driver gets enough at once to work ahead, and never the whole space."""
    played = play(exhaustive, search_over(blocks(*range(1, 151))), constant)

    assert [len(batch) for batch in played.batches] == [CHUNK, CHUNK, 150 - 2 * CHUNK]


def test_random_draws_are_uniform() -> None:
    """Over many seeds every trial is drawn first about equally often, and second too (5 sigma)."""
    search = [
        play(random_sampling, search_over(*SPACES, clocks=CLOCKS, seed=s), constant) for s in range(1200)
    ]
    for place in (0, 1):
        counts = Counter(played.trials[place] for played in search)

        assert set(counts) == EVERYTHING
        assert all(abs(count - 100) < 50 for count in counts.values())


def test_another_seed_draws_otherwise() -> None:
    """The draw is not the same for all seeds."""
    first, second = (play(random_sampling, search_over(*SPACES, seed=s), constant).trials for s in (0, 1))

    assert first != second
