"""What is believed before anything is measured, and limits of products that make configurations fail."""

import itertools
import json
import math
import statistics
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from policy_driver import candidate, result, search_over
from tuner.policies.bayesian import bayesian
from tuner.policies.surrogate import features as beliefs_module
from tuner.policies.surrogate import joint, learner
from tuner.policies.surrogate.failures import ProductLimits
from tuner.policies.surrogate.features import FILE, NAMES, beliefs, traits

from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Candidate, StageLaunch
from tuner.studies.comparison import play

OTHERWISE = math.log(0.7)
MOST = 30  # evaluations of a search


def launched(threads: int, blocks: int, **values: int) -> Candidate:
    """A configuration whose launch is known."""
    launch = StageLaunch(blocks, threads, 0, 0, 1.0, 1, 1)
    return replace(candidate(**values), launches=(launch,))


def found(candidates: list[Candidate]) -> dict[str, list[float]]:
    """Traits by name."""
    table = traits(candidates, [one.configuration for one in candidates], None)
    return {name: table[:, place].tolist() for place, name in enumerate(NAMES)}


def test_names_and_launches_tell_the_same_of_threads_and_work() -> None:
    """Twice the work of a thread is half of the threads in all."""
    pairs = [(32, 1), (64, 2), (1024, 8)]
    named = found([candidate(block_size_x=threads, tile_size_x=work) for threads, work in pairs])
    known = found([launched(threads, 2**20 // (threads * work), a=threads) for threads, work in pairs])

    for trait in ("few threads", "many threads", "work"):
        assert named[trait] == pytest.approx(known[trait])
    assert np.diff(named["work"]) == pytest.approx([1.0, 2.0])


def test_traits_that_a_space_does_not_tell_are_zero() -> None:
    """Names without a meaning, texts and constants say nothing, and give no number that is none."""
    table = traits(
        [], [Configuration({"a": value, "b": "x", "block_size_x": 64}) for value in (0, -3, 5)], None
    )

    assert not table.any()


def test_traits_are_less_their_means() -> None:
    """So a space without the mean of others starts from nothing."""
    table = traits(
        [], [Configuration({"block_size_x": x, "unroll": u}) for x in (8, 512) for u in (1, 4)], None
    )

    assert table.mean(axis=0) == pytest.approx(np.zeros(len(NAMES)))
    assert table.any()


def test_the_shipped_beliefs_tell_what_they_were_learnt_from() -> None:
    """A version, families with their spaces, and a mean and a deviation of every trait; below 200 KB."""
    document = json.loads(FILE.read_text())

    assert document["version"] >= 1
    assert all(family["spaces"] for family in document["families"].values())
    assert set(document["traits"]) == set(NAMES)
    assert (beliefs().variance > 0.0).all()
    assert FILE.stat().st_size < 200_000


def valley(trial: Trial) -> Measurement:
    """Smooth, with its minimum, 1, at 128 threads, 8 elements of work and s = 2."""
    c = trial.configurations[0]
    off = (math.log2(float(c["L"])) - 7, math.log2(float(c["tile"])) - 3, float(c["s"]) - 2)
    return result(1 + 0.1 * sum(step * step for step in off), [1.0])


def needed(seed: int) -> int:
    """Evaluations to 98 % of the best of a space with launches."""
    space = [
        launched(threads, 2**20 // (threads * tile), L=threads, tile=tile, s=s)
        for threads, tile, s in itertools.product((32, 64, 128, 256, 512, 1024), (1, 2, 4, 8, 16), range(4))
    ]
    search = replace(search_over(space), seed=seed)
    costs = [search.cost(m) for _, m in play(partial(bayesian, patience=math.inf), search, valley, MOST)]
    return next((count for count, cost in enumerate(costs, 1) if cost <= 1 / 0.98), MOST)


def test_beliefs_that_are_wrong_by_design_cost_no_more_than_ten_evaluations(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """In the median over seeds, against what is shipped."""
    right = statistics.median(map(needed, range(3)))
    wrong = replace(beliefs_module.beliefs(), mean=-beliefs_module.beliefs().mean)
    for module in (learner, joint):
        monkeypatch.setattr(module, "beliefs", lambda: wrong)

    assert statistics.median(map(needed, range(3))) <= right + 10


def grid() -> np.ndarray:
    """Logarithms of three tunables over all of a space."""
    return np.asarray(np.log(np.array(list(itertools.product((1, 2, 4, 8), (1, 2, 4, 8), (1, 3, 5))))))


def limits(seen: np.ndarray, failed: np.ndarray) -> ProductLimits:
    """As learnt from some outcomes."""
    made = ProductLimits(grid())
    made.look_again(seen, failed)
    made.learn(seen, failed)
    return made


def test_the_product_that_failures_depend_on_is_found() -> None:
    """From 24 of 48 outcomes: what is beyond the limit of two factors rather fails, the rest works."""
    pool = grid()
    fails = pool[:, 0] + pool[:, 1] > math.log(15.0)
    seen = np.random.default_rng(1).permutation(len(pool))[:24]

    works = np.exp(limits(pool[seen], fails[seen] * 1.0).log_chance_to_work(np.full(len(pool), OTHERWISE)))

    assert works[fails].max() < 0.3
    assert works[~fails].min() > 0.5


def test_failures_at_random_are_no_limit() -> None:
    """Where no product explains the outcomes, the chance stays about what it is otherwise."""
    pool = grid()
    failed = (np.random.default_rng(2).random(len(pool)) < 0.3) * 1.0

    works = limits(pool, failed).log_chance_to_work(np.full(len(pool), OTHERWISE))

    assert works == pytest.approx(np.full(len(pool), OTHERWISE), abs=0.2)


def test_without_numbers_there_is_no_limit() -> None:
    """A space of texts only leaves the chance as it is."""
    made = ProductLimits(np.zeros((4, 2)))
    made.look_again(np.zeros((2, 2)), np.array([0.0, 1.0]))
    made.learn(np.zeros((2, 2)), np.array([0.0, 1.0]))

    assert made.log_chance_to_work(np.full(4, OTHERWISE)) == pytest.approx(np.full(4, OTHERWISE))
    assert made.log_chance_to_work_at(np.zeros((1, 2)), np.array([OTHERWISE])) == pytest.approx([OTHERWISE])
