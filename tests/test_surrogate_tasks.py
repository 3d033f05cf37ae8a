"""What is learnt from other runs, as further tasks of the surrogate."""

import math
from dataclasses import replace

import numpy as np
import pytest
from policy_driver import candidate, search_over
from tuner.policies.surrogate import gaussian
from tuner.policies.surrogate.joint import Joint
from tuner.policies.surrogate.learner import MEAN, POINTS, SOURCES, best_known, learnt, nearest, of_task

from tuner.model.plan import Configuration
from tuner.space.search_view import Candidate, PriorRun, Search


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
