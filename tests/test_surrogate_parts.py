"""Encoding, expected improvement, chance to fail, start design and the joint space."""

import itertools
import json
import math
import statistics
import tracemalloc
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import candidate, result, search_over
from scipy.integrate import quad
from tuner.policies.bayesian import bayesian
from tuner.policies.surrogate import features as beliefs_module
from tuner.policies.surrogate import joint, learner
from tuner.policies.surrogate import joint as joint_module
from tuner.policies.surrogate.features import FILE, NAMES, Floats, TraitScale, beliefs, encoding, latin
from tuner.policies.surrogate.gaussian import log_expected_improvement
from tuner.policies.surrogate.joint import SQUASH, Joint, least, respond
from tuner.policies.surrogate.learner import FailureModel

from tuner.model.plan import Configuration, TunableValue
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import Candidate, StageLaunch
from tuner.studies.comparison import play


def configurations(**values: Sequence[TunableValue]) -> list[Configuration]:
    return [Configuration(zip(values, row, strict=True)) for row in zip(*values.values(), strict=True)]


def features(found: list[Configuration]) -> Floats:
    encoded = encoding(found)
    return encoded.features(encoded.codes(found))


def density(x: float) -> float:
    """Of the standard normal distribution."""
    return math.exp(-(x**2) / 2) / math.sqrt(2 * math.pi)


def test_numbers_are_ranked_by_size() -> None:
    """Powers of two lie evenly between 0 and 1, in whatever order they come."""
    assert features(configurations(L=[256, 64, 128]))[:, 0] == pytest.approx([1.0, 0.0, 0.5])


def test_texts_are_all_equally_far_apart() -> None:
    """No order is read into names: any two differ by one."""
    x = features(configurations(form=["ring", "passes", "cluster", "ring"]))

    distances = np.linalg.norm(x[:, None] - x[None], axis=2)
    assert distances[0, 1] == pytest.approx(1.0)
    assert distances[1, 2] == pytest.approx(1.0)
    assert distances[0, 3] == 0


def test_constants_and_repetitions_are_left_out() -> None:
    """A tunable with one value, and one that follows another everywhere, add nothing."""
    found = encoding(configurations(L=[32, 64, 32], one=[7, 7, 7], twin=["a", "b", "a"], P=[1, 1, 2]))

    assert [tunable.name for tunable in found.tunables] == ["L", "P"]


def test_how_often_two_divides_is_told_where_size_does_not_tell() -> None:
    """48 and 80 divide by 16, 64 by 64; powers of two, odd numbers, zero and fractions have no such part."""
    x = features(configurations(L=[48, 64, 80]))

    assert x.shape == (3, 2)
    assert x[:, 1] == pytest.approx([4 / 6, 1.0, 4 / 6])
    for values in ([2, 4, 8], [1, 3, 5], [0, 2, 6], [1.5, 2.0, 6.0], [False, True]):
        assert features(configurations(v=values)).shape == (len(values), 1)


@given(mean=st.floats(-3, 3), deviation=st.floats(0.05, 3), best=st.floats(-3, 3))
def test_expected_improvement_is_the_integral(mean: float, deviation: float, best: float) -> None:
    """EI is the mean of max(best - f, 0) over the predicted normal density."""
    expected, _ = quad(
        lambda f: (best - f) * density((f - mean) / deviation) / deviation,
        mean - 12 * deviation,
        best,
        limit=200,
    )

    found = np.exp(log_expected_improvement(np.array([mean]), np.array([deviation]), best))[0]

    assert found == pytest.approx(expected if best > mean - 12 * deviation else 0.0, rel=1e-4, abs=1e-9)


def test_expected_improvement_orders_what_promises_next_to_nothing() -> None:
    """Its logarithm stays finite and falling forty and a thousand deviations out, where EI is zero."""
    far = np.array([0.0, 0.9, 1.1, 5.0, 40.0, 1000.0])

    found = log_expected_improvement(far, np.ones(6), 0.0)

    assert np.all(np.isfinite(found))
    assert np.all(np.diff(found) < 0)


def over(pool: Floats) -> FailureModel:
    """A model of features that have a length scale each."""
    failures = FailureModel(np.arange(pool.shape[1]))
    failures.set_pool(pool)
    return failures


def test_failures_are_likely_near_failures() -> None:
    """Next to what failed the chance to work is low, next to what worked high, far away the overall rate."""
    pool = np.array([[0.0, 0.0], [1.0, 0.0], [500.0, 500.0]])
    failures = over(pool)
    failures.add(
        np.array([[0.0, 0.02 * i] for i in range(5)] + [[1.0, 0.02 * i] for i in range(5)]),
        np.repeat([1.0, 0.0], 5),
    )

    chance = np.exp(failures.log_chance_to_work())

    assert chance[0] < 0.15
    assert chance[1] > 0.85
    assert chance[2] == pytest.approx(1 / 2, abs=0.05)
    assert np.exp(failures.log_chance_to_work(pool)) == pytest.approx(chance, abs=1e-4)


def test_the_tunable_that_failures_depend_on_is_found() -> None:
    """Where only the first tunable decides, a failure speaks for configurations that differ in the others."""
    draw = np.random.default_rng(0)
    seen = draw.integers(4, size=(24, 3)) / 3
    at = np.array([[1.0, 0.5, 0.5], [0.0, 0.5, 0.5]])
    failures = over(at)
    for one in seen:
        failures.add(one[None, :], np.array([float(one[0] == 1.0)]))
        failures.log_chance_to_work()

    chance = np.exp(failures.log_chance_to_work())

    assert chance[0] < 0.2
    assert chance[1] > 0.8


def test_what_fails_at_random_is_not_avoided() -> None:
    """Where no tunable explains the outcomes, everything is taken to work; now and then one seems to."""
    grid = np.indices((5, 5, 5)).reshape(3, -1).T / 4
    silent = 0
    for seed in range(12):
        draw = np.random.default_rng(seed)
        failures = over(grid)
        failures.add(
            grid[draw.choice(len(grid), 60, replace=False)], (draw.random(60) < 0.3).astype(np.float64)
        )
        silent += not failures.log_chance_to_work().any()

    assert silent >= 10


def test_outcomes_are_learnt_once_for_every_pool() -> None:
    """Asked about another pool, what is known of failures is what a model of that pool would say."""
    draw = np.random.default_rng(0)
    grid = np.indices((4, 4)).reshape(2, -1).T / 3
    seen = grid[draw.choice(len(grid), 10, replace=False)]
    failed = (seen.sum(axis=1) > 1.0).astype(float)
    moved = over(grid)
    moved.add(seen, failed)
    moved.log_chance_to_work()
    moved.set_pool(grid[::-1])
    fresh = over(grid[::-1])
    fresh.add(seen, failed)

    assert moved.log_chance_to_work() == pytest.approx(fresh.log_chance_to_work(), abs=1e-6)


def test_where_all_outcomes_are_alike_nothing_is_said() -> None:
    """Without a failure, without a success, and before any outcome, no candidate is preferred."""
    assert over(np.zeros((2, 1))).log_chance_to_work() == pytest.approx([0.0, 0.0])

    for outcome in (0.0, 1.0):
        failures = over(np.zeros((2, 1)))
        failures.add(np.ones((3, 1)), np.full(3, outcome))

        assert failures.log_chance_to_work() == pytest.approx([0.0, 0.0])
        assert failures.log_chance_to_work(np.ones((1, 1))) == pytest.approx([0.0])


def test_however_much_failed_nothing_is_ruled_out() -> None:
    """The logarithm stays finite, so that what is left may still be measured."""
    failures = over(np.zeros((1, 1)))
    failures.add(np.zeros((500, 1)), np.append(np.ones(499), 0.0))

    assert np.isfinite(failures.log_chance_to_work()[0])


@given(numbers=st.lists(st.integers(0, 9), min_size=1, max_size=40), count=st.integers(1, 50))
def test_the_least_numbers_stand_first(numbers: list[int], count: int) -> None:
    """The places are the first ones of a stable sort."""
    listed = np.array(numbers)

    assert least(listed, count).tolist() == np.argsort(listed, kind="stable")[:count].tolist()


@given(values=st.lists(st.integers(2, 6), min_size=1, max_size=4), seed=st.integers(0, 99))
def test_a_start_design_meets_every_value(values: list[int], seed: int) -> None:
    """On a full grid, as many rows as the longest tunable has values meet each value of each tunable."""
    codes = np.indices(values).reshape(len(values), -1).T

    rows = latin(codes, codes[:0], max(values), np.random.default_rng(seed))

    assert len(set(rows)) == len(rows) == max(values)
    for tunable, count in enumerate(values):
        assert set(codes[rows, tunable]) == set(range(count))


def test_a_start_design_of_few_rows_meets_every_slice() -> None:
    """Four rows over twelve values: one in each quarter."""
    codes = np.arange(12)[:, None]

    rows = latin(codes, codes[:0], 4, np.random.default_rng(0))

    assert sorted(codes[rows, 0] // 3) == [0, 1, 2, 3]


def test_a_start_design_goes_around_what_is_taken() -> None:
    """Values that are measured anyway are not spent on again, and never asked for."""
    codes = np.arange(6)[:, None]

    rows = latin(codes, codes[:2], 4, np.random.default_rng(3))

    assert sorted(rows) == [2, 3, 4, 5]
    assert latin(codes[:2], codes[:2], 4, np.random.default_rng(3)) == []


def test_a_start_design_obeys_the_constraints() -> None:
    """Only the diagonal is legal: it is walked."""
    codes = np.stack([np.arange(5), np.arange(5)], axis=1)

    assert sorted(latin(codes, codes[:0], 5, np.random.default_rng(1))) == [0, 1, 2, 3, 4]


def test_the_slow_half_is_bent_down() -> None:
    """Above the median, differences of log cost count `SQUASH` as much; below it, in full."""
    costs = np.exp([0.0, 1.0, 2.0, 3.0, 7.0])
    response = respond(costs)

    y = response.of(costs) * response.scale

    assert np.diff(y) == pytest.approx([1.0, 1.0, SQUASH, 4 * SQUASH])


@pytest.mark.parametrize("costs", [[1.0], [2.0, 2.0], [0.0, 1.0], [1e-12, 1e9]])
def test_any_costs_have_responses(costs: list[float]) -> None:
    """One cost, equal ones, zero and huge ratios give finite numbers in the same order."""
    y = respond(np.array(costs)).of(np.array(costs))

    assert np.all(np.isfinite(y))
    assert np.all(np.diff(y) >= 0)
    assert respond(np.array(costs)).costs(y) == pytest.approx(np.maximum(costs, 1e-300))


def space(count: int) -> list[Candidate]:
    return [candidate(L=1 << i % 6, P=i // 6 % 8, S=i // 48) for i in range(count)]


def test_trials_and_rows_are_the_same_thing() -> None:
    """Every row of the pool is a trial of the space, and comes back from it."""
    search = search_over(space(20), space(7), clocks=(900, 800))
    joint = Joint(search, np.random.default_rng(0), [])

    pool = joint.pool(np.random.default_rng(0))

    assert len(pool) == joint.size == search.size == 280
    assert len({joint.trial(row) for row in pool}) == 280
    for row in pool:
        again = joint.row(joint.trial(row))
        assert again is not None
        assert np.array_equal(again, row)
    assert joint.row(Trial((Configuration({"L": 3}), space(1)[0].configuration), 900)) is None
    assert joint.row(Trial(joint.trial(pool[0]).configurations, None)) is None


def test_neighbours_differ_in_as_little_as_possible() -> None:
    """One workload or the clock changes, in one tunable where enough of those are left."""
    search = search_over(space(288), clocks=(900, 800, 700))
    joint = Joint(search, np.random.default_rng(0), [])
    row = np.array([100, 1])

    near = joint.neighbours(row, {(100, 1), (100, 0)})

    assert [100, 2] in near.tolist()
    assert [100, 0] not in near.tolist()
    changed = (joint.codes(near) != joint.codes(row[None, :])).sum(axis=1)
    assert set(changed) == {1, 2}


def test_the_last_neighbour_is_found_and_then_none() -> None:
    """Nothing is left out for being far, and a space that is used up has no neighbours."""
    joint = Joint(search_over(space(3)), np.random.default_rng(0), [])

    assert joint.neighbours(np.array([0, 0]), {(0, 0), (1, 0)}).tolist() == [[2, 0]]
    assert not len(joint.neighbours(np.array([0, 0]), {(0, 0), (1, 0), (2, 0)}))


def test_a_clock_is_one_numeric_tunable() -> None:
    """Clocks add one feature between 0 (the highest) and 1; a single clock adds none."""
    several = Joint(search_over(space(2), clocks=(900, 800, 700)), np.random.default_rng(0), [])
    single = Joint(search_over(space(2), clocks=(900,)), np.random.default_rng(0), [])

    rows = np.array([[0, 0], [0, 1], [0, 2]])
    assert several.features(rows)[:, -1] == pytest.approx([0, 0.5, 1])
    assert several.tunables == single.tunables + 1


def test_a_million_trials_take_little_memory() -> None:
    """Two workloads of a thousand candidates at four clocks are sampled, never listed."""
    search = search_over(space(1000), space(1000), clocks=(4, 3, 2, 1))
    draw = np.random.default_rng(0)
    tracemalloc.start()
    joint = Joint(search, draw, [])
    pool = joint.pool(draw)
    features = joint.features(pool)
    joint.neighbours(pool[0], set())
    _, peak_bytes = tracemalloc.get_traced_memory()
    tracemalloc.stop()

    assert joint.size == 4_000_000
    assert len(features) <= joint_module.SAMPLE
    assert peak_bytes < 16e6


def test_a_workload_of_very_many_candidates_is_sampled_with_what_must_be_in(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Of more than `MOST` candidates so many are drawn, and those that have to be kept are."""
    monkeypatch.setattr(joint_module, "MOST_CANDIDATES", 50)
    candidates = space(280)
    kept = [Trial((candidates[i].configuration,)) for i in (3, 277)]

    joint = Joint(search_over(candidates), np.random.default_rng(0), kept)

    assert 50 <= joint.size <= 52
    assert all(joint.row(trial) is not None for trial in kept)


# --- what is believed before anything is measured, and limits of products that make configurations fail


MOST = 30  # evaluations of a search


def launched(threads: int, blocks: int, **values: int) -> Candidate:
    """A configuration whose launch is known."""
    launch = StageLaunch(blocks, threads, 0, 0, 1.0, 1, 1)
    return replace(candidate(**values), launches=(launch,))


def found(candidates: list[Candidate]) -> dict[str, list[float]]:
    """Traits by name."""
    table = TraitScale(candidates, [one.configuration for one in candidates], None).table
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
    table = TraitScale(
        [], [Configuration({"a": value, "b": "x", "block_size_x": 64}) for value in (0, -3, 5)], None
    ).table

    assert not table.any()


def test_traits_are_less_their_means() -> None:
    """So a space without the mean of others starts from nothing."""
    table = TraitScale(
        [], [Configuration({"block_size_x": x, "unroll": u}) for x in (8, 512) for u in (1, 4)], None
    ).table

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
