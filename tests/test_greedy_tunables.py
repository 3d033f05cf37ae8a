"""Kernels with more tunables than the block size: the order of candidates, and the descent among variants."""

import math
import random
import statistics
from collections.abc import Sequence
from dataclasses import replace
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import candidate, play, result, search_over
from tuner.policies.descent import Order

from tuner.model import registry
from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Status, Trial, WorkloadResult
from tuner.space.search_view import Candidate

greedy = registry.load("policy", "greedy")
exhaustive = registry.load("policy", "exhaustive")


def values(configurations: Sequence[Configuration]) -> list[tuple[object, ...]]:
    return [tuple(configuration.values()) for configuration in configurations]


def nearest(line: Sequence[Sequence[Configuration]]) -> list[Configuration]:
    """The first of every list."""
    return [those[0] for those in line]


def two(threads: int, elements: int, **more: int) -> Candidate:
    """A candidate with tunables L and P in their roles."""
    return candidate(threads=threads, elements=elements, L=threads, P=elements, **more)


# --- order ---------------------------------------------------------------------------------------


def test_candidates_stand_by_occupancy_then_block_then_elements_then_space() -> None:
    """Step 5 of Algorithm 1 and its tie-breakers, one level at a time."""
    ordered = [
        candidate(1.0, 256, 2, name="occupancy"),
        candidate(0.9, 512, 2, name="block"),
        candidate(0.9, 256, 4, name="elements"),
        candidate(0.9, 256, 2, name="first in the space"),
        candidate(0.9, 256, 2, name="second in the space"),
    ]
    given_order = [ordered[i] for i in (3, 2, 1, 4, 0)]

    assert Order(given_order).configurations == [c.configuration for c in ordered]


def test_the_first_is_that_of_the_best_compiled_occupancy() -> None:
    """Bounds say in which order to compile; no more is compiled than a bound could put first."""
    compiled = {1024: 0.5, 512: 0.75, 256: 0.9, 128: None, 64: 0.8, 32: 0.9}
    declared = [replace(two(threads, 4), declared=True) for threads in compiled]
    declared += [replace(candidate(0.6, 16 * n, n, L=16 * n), declared=True) for n in range(1, 20)]
    asked: list[object] = []

    def resolve(some: Sequence[Candidate]) -> list[Candidate | None]:
        asked.extend(some)
        found = [compiled.get(one.threads_per_block, one.occupancy) for one in some]
        return [
            None if occupancy is None else replace(one, occupancy=occupancy, declared=False)
            for one, occupancy in zip(some, found, strict=True)
        ]

    ordered = Order(declared, resolve).configurations

    assert ordered[0]["L"] == 256
    assert ordered[1:6] == [one.configuration for one in declared[:6] if one.configuration["L"] != 256]
    assert len(asked) == 8 < len(declared)
    assert Order(declared).configurations[0]["L"] == 1024


def test_distributions_stand_by_block_size() -> None:
    """D has one entry per block size; the 1024 of low occupancy does not come between 256 and 128."""
    space = [candidate(1.0, 256, L=256), candidate(0.5, 1024, L=1024), candidate(0.8, 128, L=128)]
    order = Order(space)

    assert order.configurations[0] == space[0].configuration
    assert values(nearest(order.distributions(space[0].configuration))) == [(1024,), (256,), (128,)]


def test_a_distribution_is_represented_by_the_variant_nearest_to_the_present_one() -> None:
    """Equal work per block (S = P × L) first, or equal tunables; then fewest differences, then order."""
    present, other = two(512, 4, r=2, S=0), two(512, 8, r=2, S=0)
    far, near, thin = two(256, 8, r=8, S=4), two(256, 8, r=2, S=4), two(256, 4, r=2, S=0)
    order = Order([other, present, thin, far, near])

    by_work = nearest(order.distributions(present.configuration))
    by_tunables = nearest(order.distributions(present.configuration, same_work=False))

    assert values(by_work) == [(512, 4, 2, 0), (256, 8, 2, 4)]
    assert values(by_tunables) == [(512, 4, 2, 0), (256, 4, 2, 0)]


def test_a_line_runs_through_one_distribution_from_large_to_small() -> None:
    """One variant per value of the tunable, the nearest to the present one, other block sizes left out."""
    space = [two(256, p, r=r) for p in (2, 16, 4) for r in (2, 4) if r <= p] + [two(512, 32, r=2)]
    order = Order(space)

    assert values(nearest(order.line(two(256, 4, r=4).configuration, "P"))) == [
        (256, 16, 4),
        (256, 4, 4),
        (256, 2, 2),
    ]
    assert values(nearest(order.line(two(256, 4, r=4).configuration, "r"))) == [(256, 4, 4), (256, 4, 2)]


def test_text_values_stand_in_the_order_of_their_best_candidates() -> None:
    """Texts have no size: the order of candidates decides."""
    space = [candidate(how="b"), candidate(how="c"), candidate(how="a")]

    assert values(nearest(Order(space).line(space[2].configuration, "how"))) == [("b",), ("c",), ("a",)]


def test_where_the_nearest_is_ruled_out_the_next_stands_for_its_value() -> None:
    """A block size is passed over only where compiling leaves none of it, and costs one measurement."""
    space = [two(256, 4, r=2), two(256, 8, r=2), two(128, 8, r=2), two(128, 16, r=2), two(64, 16, r=2)]
    pruned = {space[2].configuration, space[4].configuration}
    cost = {256: 3.0, 128: 2.0, 64: 1.0}
    expected: list[Trial] = []

    def measure(trial: Trial) -> Measurement:
        (configuration,) = trial.configurations
        if configuration in pruned:
            return Measurement((WorkloadResult(Status.PRUNED),))
        return result(cost[int(configuration["L"])] + int(configuration["P"]) / 100, [1.0])

    search = replace(search_over(space), expect=expected.extend)
    played = play(greedy, search, measure)
    asked = [trial.configurations[0] for trial in played.trials]

    assert played.best == Trial((space[3].configuration,))
    assert asked.index(space[2].configuration) < asked.index(space[3].configuration)
    assert len(asked) == len(set(asked)) == len(space)
    assert set(expected) >= {Trial((space[i].configuration,)) for i in (0, 2, 4)}


# --- descent -------------------------------------------------------------------------------------


def test_variants_are_descended_along_one_tunable_after_another() -> None:
    """Worked by hand: block sizes, then P up and down, then r down; the block size stays: one pass."""
    space = [
        candidate(0.9 if p == 8 else 1.0, size, p, r=r, L=size, P=p)
        for size, p, r in product((512, 256), (8, 4, 2), (4, 2, 1))
        if r <= p
    ]
    table: dict[tuple[object, ...], float] = {
        (4, 512, 4): 10.0,  # (r, L, P): D[0], P = 4 is the largest with full occupancy
        (4, 512, 8): 10.5,  # the default: costlier
        (4, 256, 8): 11.0,  # D with equal work per block: worse
        (4, 256, 4): 11.5,  # D with equal tunables: worse; 512 stays
        # P up: (4, 512, 8) is known to be worse
        (2, 512, 2): 9.0,  # P down, where r = 4 is not possible: better, and the end of the line
        (1, 512, 2): 9.5,  # r down: worse
    }

    played = play(
        greedy, search_over(space), lambda trial: result(table[values(trial.configurations)[0]], [1])
    )

    assert [values(trial.configurations)[0] for trial in played.trials] == list(table)
    assert played.best is not None
    assert values(played.best.configurations) == [(2, 512, 2)]


def test_variants_are_tried_once_for_every_distribution() -> None:
    """The second pass, which follows a new block size, examines block sizes alone."""
    first = [two(size, p) for size, p in product((512, 256), (8, 4, 2)) if size * p <= 2048]
    second = [two(256, p) for p in (4, 2)]
    table: dict[tuple[object, ...], float] = {
        (512, 4, 256, 4): 10.0,
        (256, 8, 256, 4): 8.0,  # D of the first kernel: better
        (256, 4, 256, 4): 9.0,  # P down: worse
        (256, 8, 256, 2): 8.5,  # P of the second kernel, down: worse
        # Another pass: (512, 4) of the first is known; there is nothing else.
    }

    def key(trial: Trial) -> tuple[object, ...]:
        return tuple(value for c in trial.configurations for value in c.values())

    played = play(greedy, search_over(first, second), lambda trial: result(table[key(trial)], [2.0, 1.0]))

    assert [key(trial) for trial in played.trials] == list(table)


def test_the_elements_per_thread_are_tuned_first() -> None:
    """Of the tunables, the one in that role stands first; the others as they were declared."""
    space = [candidate(1.0, 256, p, shuffle=True, r=r, P=p) for p, r in ((4, 2), (2, 2))]

    assert Order(space).tunables == ("P", "shuffle", "r")


def kernel_space(largest: int) -> list[Candidate]:
    """A space like the catalogue's: four block sizes, P, r and shuffle, 66 candidates."""
    return [
        candidate(1.0 if p <= largest else 0.875, size, p, P=p, L=size, r=r, shuffle=shuffle)
        for size, p, r, shuffle in product((1024, 512, 256, 128), (2, 4, 8, 16), (2, 4, 8), (False, True))
        if r <= p and not (p == 16 and size == 1024)
    ]


def joules(peaks: Sequence[tuple[float, ...]], trial: Trial) -> float:
    """A smooth energy: a bowl around each kernel's own optimum, a coupling by block size, a clock."""
    clock: float = (trial.clock_mhz or 875) / 875
    total = crowd = 0.0
    for (block, elements, radix, shuffle), c in zip(peaks, trial.configurations, strict=True):
        size, p, r = (math.log2(int(c[name])) for name in ("L", "P", "r"))
        time = 1 + 0.03 * (size - block) ** 2 + 0.02 * (p - elements) ** 2 + 0.02 * (r - radix) ** 2
        total += time * (1 + shuffle * bool(c["shuffle"])) * max(0.8, 1 / clock)
        crowd += size
    return total * (1 + 0.002 * crowd) * (0.4 + math.pow(clock, 2.2))


def test_greedy_comes_near_the_optimum_in_a_tenth_of_the_trials() -> None:
    """Two kernels and four clocks, thousands of trials: on seeded landscapes the descent mostly loses little.

    That is no law: a descent that starts in another valley stays there.
    """
    spaces = [kernel_space(4)[::3], kernel_space(8)[1::3]]
    search = search_over(*spaces, clocks=(875, 810, 745, 666))
    rng = random.Random(20)  # noqa: S311 - reproducible
    losses = []
    for _ in range(11):
        peaks = tuple(
            (rng.uniform(7, 10), rng.uniform(1, 4), rng.uniform(1, 3), rng.uniform(-0.05, 0.05))
            for _ in range(2)
        )

        def measure(trial: Trial, peaks: tuple[tuple[float, ...], ...] = peaks) -> Measurement:
            return result(joules(peaks, trial), [1.0, 1.0])

        found, everything = play(greedy, search, measure), play(exhaustive, search, measure)

        assert found.best is not None
        assert everything.best is not None
        assert len(found.trials) <= search.size / 10
        losses.append(joules(peaks, found.best) / joules(peaks, everything.best) - 1)
    assert statistics.median(losses) <= 0.02, losses
    assert max(losses) <= 0.1, losses


@given(st.data())
def test_greedy_is_never_worse_than_its_first_valid_trial(data: st.DataObject) -> None:
    """Whatever the costs and failures: it ends, repeats no trial, and returns the cheapest it measured."""
    spaces = [kernel_space(4)[:: data.draw(st.integers(1, 9))] for _ in range(data.draw(st.integers(1, 3)))]
    search = search_over(*spaces, clocks=data.draw(st.sampled_from([(), (875,), (875, 810, 745)])))
    costs: dict[Trial, float] = {}

    def measure(trial: Trial) -> Measurement:
        costs[trial] = data.draw(st.sampled_from([1.0, 2.0, 3.0, 4.0, 5.0, math.inf]))
        failed = [0] if costs[trial] == math.inf else []
        return result(costs[trial], [1.0] * len(spaces), failed)

    played = play(greedy, search, measure)

    assert len(set(played.trials)) == len(played.trials)
    lowest = min(costs.values())
    assert (played.best is None) == (lowest == math.inf)
    assert played.best is None or costs[played.best] == lowest


@pytest.mark.parametrize("count", [1, 5_000])
def test_an_order_of_many_candidates_answers(count: int) -> None:
    """Lines and distributions of a large space are found whole, by array operations."""
    space = [two(32 << i % 6, 1 << i // 6 % 5, S=i // 30) for i in range(count)]
    order = Order(space)

    assert len(order.distributions(space[0].configuration)) == min(count, 6)
    assert len(order.line(space[0].configuration, "S")) == -(-count // 30)


def asked(
    costs: dict[tuple[int, ...], float], *spaces: Sequence[Candidate], clocks: Sequence[int] = ()
) -> bool:
    """True when greedy runs the trials of a table, in its order; a key is each P or L, and the clock."""

    def key(trial: Trial) -> tuple[int, ...]:
        chosen = tuple(int(next(iter(one.values()))) for one in trial.configurations)
        return chosen if trial.clock_mhz is None else (*chosen, trial.clock_mhz)

    def measure(trial: Trial) -> Measurement:
        return result(costs[key(trial)], [1.0] * len(spaces))

    return [
        key(trial) for trial in play(greedy, search_over(*spaces, clocks=clocks), measure).trials
    ] == list(costs)


def test_a_gain_within_a_block_size_does_not_go_back_to_the_clock() -> None:
    """Only a new distribution restarts the search: P = 2 gains a fifth, and 810 MHz is not tried with it."""
    space = [candidate(threads=256, elements=P, P=P) for P in (1, 2, 4)]
    costs: dict[tuple[int, ...], float] = {(4, 875): 10.0, (1, 875): 9.0, (1, 810): 9.5, (2, 875): 7.0}

    assert asked(costs, space, clocks=(875, 810))


def test_tunables_of_a_block_size_are_walked_along_once() -> None:
    """Kernel 1 gains a fifth by 256 threads: kernel 0 is looked at again, but not along P, where it was."""
    first = [candidate(threads=256, elements=P, P=P) for P in (2, 1)]
    second = [candidate(threads=L, L=L) for L in (512, 256)]

    assert asked({(2, 512): 10.0, (1, 512): 11.0, (2, 256): 8.0}, first, second)
