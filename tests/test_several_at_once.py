"""Policies where several trials are measured at once, and that nothing changes where one is."""

import hashlib
import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import numpy as np
import pytest
from policy_driver import Measure, Played, blocks, candidate, makespan, play, result, search_over
from tuner.policies.greedy import SPARE
from tuner.policies.surrogate.joint import Joint
from tuner.policies.surrogate.learner import Learner

from tuner.model import registry
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Candidate, Payback, Search

AT_ONCE = 4


def grid(*lengths: int) -> list[Candidate]:
    """A space of some tunables, a, b, c ..., each with so many values."""
    points = product(*(range(length) for length in lengths))
    return [candidate(1.0, 32 << point[0], **dict(zip("abcdef", point, strict=False))) for point in points]


ONE = search_over(grid(6, 5, 4))
TOGETHER = search_over(grid(5, 3), grid(4, 3), blocks(512, 256, 128))
CLOCKS = search_over(grid(5, 3), blocks(512, 256, 128), clocks=(900, 800, 700, 600))
SPACES = {"one": ONE, "together": TOGETHER, "clocks": CLOCKS}


def valley(trial: Trial) -> Measurement:
    """A smooth cost with one minimum per workload, made uneven so that no two trials cost the same."""
    cost = 1.0 + (1200 - (trial.clock_mhz or 900)) * 1e-4
    for place, configuration in enumerate(trial.configurations):
        for weight, value in enumerate(configuration.values(), start=1):
            cost += 0.05 * abs(float(value) % 9 - 1.7 - place) ** 1.5 + 0.001 * weight * float(value)
    return result(cost, [cost / (1 + place) for place in range(len(trial.configurations))])


def rough(trial: Trial) -> Measurement:
    """A cost by a hash of the trial, a sixth of the trials failing: a neighbour tells nothing."""
    text = f"{[dict(one) for one in trial.configurations]} {trial.clock_mhz}"
    number = int.from_bytes(hashlib.sha256(text.encode()).digest()[:4], "big")
    failed = [0] if number % 6 == 0 else []
    return result(1 + number / 2**32, [1.0] * len(trial.configurations), failed)


def played(name: str, search: Search, measure: Measure, parallel: int = 1) -> Played:
    """A policy played to its end."""
    return play(registry.load("policy", name), replace(search, parallel=parallel), measure)


def rounds(one: Played, parallel: int) -> int:
    """Rounds that the trials take, list by list."""
    return sum(math.ceil(len(batch) / parallel) for batch in one.batches)


# As version 0.2 asked for trials: lists of each search, one trial measured at once.
ALONE = [
    ("auto", "together", valley, "48362f158060"),
    ("auto", "together", rough, "4d85342f72f0"),
    ("auto", "clocks", valley, "adf65f208f84"),
    ("auto", "clocks", rough, "7d18e4e44b8d"),
    ("greedy", "one", valley, "3885a330f56b"),
    ("greedy", "one", rough, "570e64533e37"),
    ("greedy", "together", valley, "48362f158060"),
    ("greedy", "together", rough, "4d85342f72f0"),
    ("greedy", "clocks", valley, "adf65f208f84"),
    ("greedy", "clocks", rough, "7d18e4e44b8d"),
    ("hill-climbing", "together", valley, "31f500f0f016"),
    ("hill-climbing", "clocks", rough, "d6c4a8d22f81"),
    ("local", "one", valley, "f368b2dcb936"),
    ("local", "together", rough, "cfbd38ae13a6"),
    ("local", "clocks", valley, "9c4f049e39ee"),
]


def digest(batches: Sequence[Sequence[Trial]]) -> str:
    """Of lists of trials, in their order."""
    texts = [[f"{[dict(c) for c in t.configurations]} {t.clock_mhz}" for t in batch] for batch in batches]
    return hashlib.sha256(repr(texts).encode()).hexdigest()[:12]


@pytest.mark.parametrize(("name", "where", "measure", "lists"), ALONE)
def test_one_at_a_time_is_searched_as_before(name: str, where: str, measure: Measure, lists: str) -> None:
    """Where one trial is measured at once, policies ask for the same lists as without that option."""
    assert digest(played(name, SPACES[where], measure).batches) == lists


def test_one_at_a_time_nothing_is_supposed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Where one trial is measured at once, a Bayesian search supposes nothing and asks for one at a time."""
    monkeypatch.setattr(Learner, "suppose", lambda *_: pytest.fail("supposed"))

    alone = played("bayesian", ONE, valley)

    assert all(len(batch) == 1 for batch in alone.batches[1:])
    assert len(alone.batches) > 1


@pytest.mark.parametrize("measure", [valley, rough])
@pytest.mark.parametrize("where", SPACES)
@pytest.mark.parametrize("name", ["greedy", "local"])
def test_looking_ahead_goes_the_same_way_in_fewer_rounds(name: str, where: str, measure: Measure) -> None:
    """What a descent asks for alone is among what is measured, so that its answer is no worse."""
    alone, ahead = (played(name, SPACES[where], measure, parallel) for parallel in (1, AT_ONCE))

    assert set(alone.trials) <= set(ahead.trials)
    assert rounds(ahead, AT_ONCE) < rounds(alone, 1)
    assert alone.best is not None
    assert ahead.best is not None
    assert makespan(measure(ahead.best)) <= makespan(measure(alone.best))


@pytest.mark.parametrize("measure", [valley, rough])
@pytest.mark.parametrize("where", SPACES)
@pytest.mark.parametrize("name", ["greedy", "local"])
def test_few_trials_are_in_vain(name: str, where: str, measure: Measure) -> None:
    """Of the trials that a descent alone does not ask for, no more are measured than `SPARE` allows."""
    alone = len(played(name, SPACES[where], measure).trials)
    for parallel in (2, AT_ONCE, 16):
        ahead = played(name, SPACES[where], measure, parallel)

        assert len(ahead.trials) <= alone + 1 + SPARE * alone
        assert max(map(len, ahead.batches)) <= parallel


def test_what_is_guessed_is_told_to_nobody() -> None:
    """The run ahead neither announces trials nor says anything: a user hears of the search alone."""
    said: dict[int, list[Sequence[Trial] | str]] = {1: [], AT_ONCE: []}
    for parallel, heard in said.items():
        played("greedy", replace(TOGETHER, tell=heard.append, expect=heard.append), valley, parallel)

    assert said[1] == said[AT_ONCE]


@pytest.mark.parametrize("where", SPACES)
def test_a_bayesian_search_fills_its_lists(where: str) -> None:
    """As many different trials as are measured at once are asked for, and the search takes fewer rounds."""
    alone, several = (played("bayesian", SPACES[where], valley, parallel) for parallel in (1, AT_ONCE))

    proposed = several.batches[1:-1]
    assert proposed
    assert all(len(set(batch)) == AT_ONCE for batch in proposed)
    assert len(set(several.trials)) == len(several.trials)
    assert rounds(several, AT_ONCE) < 2 / 3 * rounds(alone, 1)
    assert several.best == alone.best


def test_supposed_trials_are_chosen_apart() -> None:
    """A trial that is supposed to be measured is not proposed again, and what is like it promises less."""
    draw = np.random.default_rng(0)
    joint = Joint(ONE, draw, [])
    learner = Learner(joint, draw, None)
    for row in joint.pool(draw)[::7]:
        learner.learn(row, makespan(valley(joint.trial(row))), 0.0)
    before = learner.outlook()
    assert before is not None
    first = before.best.row
    learner.suppose(first)
    supposed = learner.outlook()
    learner.forget()
    again = learner.outlook()
    assert supposed is not None
    assert again is not None

    places = [i for i, row in enumerate(before.rows.tolist()) if row != first.tolist()]
    assert supposed.rows.tolist() == before.rows[places].tolist()
    assert supposed.mean == pytest.approx(before.mean[places], abs=1e-6)
    assert (supposed.deviation <= before.deviation[places] + 1e-9).all()
    assert again.log_gain == pytest.approx(before.log_gain)


def test_a_break_even_ends_a_search_of_several() -> None:
    """Where no trial pays, a search ends after its start, however many are measured at once."""
    for name in ("auto", "bayesian"):
        said: list[str] = []
        search = replace(ONE, payback=Payback(1e-9, makespan), tell=said.append)
        ended = played(name, search, valley, AT_ONCE)

        assert len(ended.trials) <= 5 * AT_ONCE
        assert any(line.startswith("done: another trial is expected to save ") for line in said)
