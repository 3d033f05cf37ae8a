"""What workloads cost alone, as a feature of searches of several."""

import math
from dataclasses import replace

import numpy as np
import pytest
from policy_driver import candidate, makespan, play, result, search_over
from tuner.policies.bayesian import bayesian
from tuner.policies.surrogate.joint import costs_alone, slower_alone

from tuner.model.plan import Configuration
from tuner.model.trial import Measurement, Trial
from tuner.space.search_view import PriorRun, Search

ONE = [candidate(B=value) for value in range(12)]
TWO = [candidate(C=value) for value in range(12)]
SIZES = ({"N": 64}, {"N": 128})


def alone(place: int, configuration: Configuration) -> float:
    """Costs without any order in the value."""
    (value,) = configuration.values()
    return 1.0 + (3 + int(value) * (5, 7)[place]) % 12 / 12


def together(trial: Trial) -> Measurement:
    """The shorter adds a third of its cost; those that are best alone get in each other's way."""
    costs = [alone(place, one) for place, one in enumerate(trial.configurations)]
    return result(max(costs) + 0.3 * min(costs) + 0.3 * (max(costs) == 1.0), costs)


def runs() -> tuple[PriorRun, ...]:
    return tuple(
        PriorRun(
            place,
            SIZES[place],
            "here",
            tuple((c.configuration, alone(place, c.configuration)) for c in found),
        )
        for place, found in enumerate((ONE, TWO))
    )


def search(seed: int, known: tuple[PriorRun, ...]) -> Search:
    found = search_over(ONE, TWO, seed=seed)
    return replace(found, sizes=SIZES, device="here", prior_runs=known)


def test_the_feature_orders_configurations_by_what_they_cost_alone() -> None:
    """The cheapest is 0, the dearest 1; a failed one is as dear, and an unknown one in the middle."""
    fast, slow, middle, failed, unknown = [c.configuration for c in ONE[:5]]
    run = PriorRun(0, {}, "", ((fast, 1.0), (slow, 4.0), (middle, 2.0), (failed, math.inf)))

    feature = slower_alone(run, [fast, slow, middle, failed, unknown])

    np.testing.assert_allclose(feature[:, 0], [0.0, 1.0, 0.5, 1.0, 0.5])


@pytest.mark.parametrize("points", [(), ((ONE[0].configuration, 1.0), (ONE[1].configuration, 1.0))])
def test_costs_that_tell_nothing_are_no_feature(points: tuple[tuple[Configuration, float], ...]) -> None:
    """Without costs, or where all are equal, there is nothing to learn from."""
    assert slower_alone(PriorRun(0, {}, "", points), [c.configuration for c in ONE]).shape == (12, 0)
    assert slower_alone(None, [c.configuration for c in ONE]).shape == (12, 0)


def test_other_sizes_and_gpus_are_not_alone() -> None:
    """Only the same workload on the same GPU counts, and only beside others."""
    same = runs()
    elsewhere = (replace(same[0], device="there"), replace(same[1], sizes={"N": 64}))

    assert costs_alone(search(0, same), 1) == same[1]
    assert costs_alone(search(0, elsewhere), 0) is None
    assert costs_alone(search(0, elsewhere), 1) is None
    assert costs_alone(replace(search_over(ONE), sizes=SIZES[:1], device="here", prior_runs=same), 0) is None


def test_costs_alone_shorten_a_search_of_both() -> None:
    """Values without order are learnt one by one; with costs alone the best come first."""
    least = min(makespan(together(Trial((a.configuration, b.configuration)))) for a in ONE for b in TWO)
    needed: dict[bool, list[int]] = {True: [], False: []}
    for seed in range(3):
        for informed in (True, False):
            played = play(bayesian, search(seed, runs() if informed else ()), together, 60)
            costs = [makespan(together(trial)) for trial in played.trials]
            needed[informed].append(next((i for i, cost in enumerate(costs) if cost <= least), 60))

    assert max(needed[True]) < np.median(needed[False])


def test_several_workloads_may_end_after_as_many_trials_as_they_have_configurations() -> None:
    """12 and 12 configurations are 144 trials, of which a single workload would ask for more."""
    played = play(bayesian, search(0, ()), lambda _: result(1.0, [1.0, 1.0]))

    assert played.ended
    assert len(played.trials) <= len(ONE) + len(TWO) + 12
