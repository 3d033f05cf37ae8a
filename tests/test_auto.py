"""The default policy: what it chooses, in which order, and what it says."""

from dataclasses import replace
from functools import partial
from itertools import product

import pytest
from policy_driver import Measure, Played, blocks, candidate, play, result, search_over
from tuner.policies.auto import AHEAD, first_expected

from tuner.model import registry
from tuner.model.plan import STREAM_PRIORITY
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Candidate, Policy, Search


@pytest.fixture(scope="module")
def auto() -> Policy:
    loaded: Policy = registry.load("policy", "auto")
    return loaded


def grid(count: int) -> list[Candidate]:
    """A space of three tunables."""
    points = list(product(range(8), range(8), range(8)))[:count]
    return [candidate(a=a, b=b, c=c) for a, b, c in points]


def far(trial: Trial) -> Measurement:
    """One minimum, at the largest values."""
    values = [value for one in trial.configurations for value in one.values()]
    return result(100.0 - sum(map(float, values)), [1.0] * len(trial.configurations))


def told(policy: Policy, search: Search, measure: Measure, budget: float = 40) -> tuple[Played, list[str]]:
    """What a policy does, and what it says."""
    said: list[str] = []
    return play(policy, replace(search, tell=said.append), measure, budget), said


@pytest.mark.parametrize(
    ("search", "chosen", "why"),
    [
        (search_over(grid(24)), "exhaustive", "24 trials"),
        (search_over(grid(12), clocks=(900, 600)), "exhaustive", "24 trials"),
        (search_over(grid(13), clocks=(900, 600)), "greedy", "2 clocks"),
        (
            search_over(blocks(1024, 512, 256, 128, 64), blocks(1024, 512, 256, 128, 64)),
            "greedy",
            "2 workloads",
        ),
        (
            replace(search_over(grid(25), grid(25)), tunables=({STREAM_PRIORITY: (0, 1)},) * 2),
            "bayesian",
            "priorities",
        ),
        (search_over(grid(25)), "bayesian", "25 configurations"),
        (search_over(grid(25), clocks=(900,)), "bayesian", "25 configurations"),
    ],
)
def test_the_space_chooses_the_policy_and_the_user_hears_why(
    auto: Policy, search: Search, chosen: str, why: str
) -> None:
    """Small spaces are measured whole, joint ones and clocks descended, all others modelled."""
    _, said = told(auto, search, far)

    (sentence,) = [sentence for sentence in said if sentence.startswith("auto: " + chosen)]
    assert why in sentence


@pytest.mark.parametrize(
    ("search", "expected"),
    [
        (search_over(grid(24)), 0),
        (search_over(grid(25)), 25),
        (search_over(grid(300)), AHEAD),
        (replace(search_over(grid(25)), label="modelled"), 0),  # there is no GPU to wait for
        (replace(search_over(grid(25), grid(25)), tunables=({STREAM_PRIORITY: (0, 1)},) * 2), 0),
    ],
)
def test_what_may_be_swept_is_compiled_beside_the_default(search: Search, expected: int) -> None:
    """Before the first trial has ended nothing else keeps the CPUs busy; a model ends it at once."""
    assert len(set(first_expected(search))) == len(first_expected(search)) == expected


def test_a_small_space_is_measured_whole(auto: Policy) -> None:
    """Every trial once, the answer the lowest of all."""
    search = search_over(grid(20))

    played = play(auto, search, far)

    assert len(played.trials) == len(set(played.trials)) == 20
    assert played.best is not None
    assert far(played.best).makespan_s == min(far(trial).makespan_s or 0.0 for trial in played.trials)


def test_the_analytical_answer_is_measured_before_anything_else(auto: Policy) -> None:
    """The first trial is the one that the analytical policy asks for, whatever comes after it."""
    for search in (search_over(grid(20)), search_over(grid(100)), search_over(blocks(512, 256), blocks(256))):
        first = play(registry.load("policy", "analytical"), search, far).trials[0]
        assert play(auto, search, far, 1).trials == [first]


def test_it_reports_what_the_analytical_answer_gave(auto: Policy) -> None:
    """Time of the first trial, in words, before the search goes on."""
    _, said = told(auto, search_over(grid(30)), lambda _: result(0.0125, [0.0125]), 1e9)

    places = [i for i, sentence in enumerate(said) if sentence == "first answer: 12.50 ms"]
    assert places
    assert places[0] < next(i for i, sentence in enumerate(said) if "auto: bayesian" in sentence)


def test_patience_reaches_the_bayesian_search(auto: Policy) -> None:
    """More patience, more evaluations where nothing improves."""
    search = search_over(grid(300))

    def count(patience: int) -> int:
        trials = play(lambda s: auto(s, patience=patience), search, lambda _: result(1.0, [1.0])).trials  # type: ignore[call-arg]
        return len(trials)

    assert count(2) < count(20) < 300


def test_a_space_that_takes_little_time_is_measured_whole(auto: Policy) -> None:
    """300 trials of 15 ms are swept, and a number of patience says that they are not to be."""

    def count(**options: int) -> int:
        now_s = iter(range(1, 1000))

        def measure(trial: Trial) -> Measurement:
            return replace(far(trial), ended_s=0.015 * next(now_s))

        return len(play(partial(auto, **options), search_over(grid(300)), measure).trials)

    assert count() == 300
    assert count(patience=5) < 100
