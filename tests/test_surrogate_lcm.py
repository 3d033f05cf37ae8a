"""The linear model of coregionalisation, and what is learnt from other runs."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from policy_driver import candidate, search_over
from scipy.optimize import approx_fprime
from tuner.policies.surrogate import lcm
from tuner.policies.surrogate.gaussian import by_group
from tuner.policies.surrogate.joint import Joint
from tuner.policies.surrogate.lcm import Coregional
from tuner.policies.surrogate.learner import POINTS, SOURCES, best_known, learnt, nearest

from tuner.model.plan import Configuration
from tuner.space.search_view import Candidate, PriorRun, Search

GROUPS = np.array([0, 1])
TASKS = 3


def points(count: int, seed: int = 0) -> np.ndarray:
    draw = np.random.default_rng(seed)
    return np.hstack([draw.random((count, 2)), draw.integers(TASKS, size=(count, 1)).astype(float)])


@given(
    lengths=st.lists(st.floats(-3, 5), min_size=4, max_size=4),
    weights=st.lists(st.floats(-3, 3), min_size=6, max_size=6),
    own=st.lists(st.floats(-7, 3), min_size=6, max_size=6),
    seed=st.integers(0, 1000),
)
def test_it_is_a_covariance(lengths: list[float], weights: list[float], own: list[float], seed: int) -> None:
    """Symmetric and positive semi-definite whatever the hyper-parameters, with the spread on its diagonal."""
    model = Coregional(
        GROUPS,
        np.array(lengths).reshape(2, 2),
        np.array(weights).reshape(2, TASKS),
        np.array(own).reshape(2, TASKS),
        np.zeros(TASKS),
    )
    x = points(15, seed)

    covariance = model.covariance(x, x)

    assert covariance == pytest.approx(covariance.T)
    assert np.linalg.eigvalsh(covariance).min() >= -1e-9 * np.trace(covariance)
    assert np.diag(covariance) == pytest.approx(model.spread(x))


def test_the_gradient_of_the_fit_is_that_of_its_value() -> None:
    """Analytic and finite differences agree in every hyper-parameter."""
    x = points(14)
    y = np.cos(4 * x[:, 0]) + 0.3 * x[:, 2]
    like = lcm.prior(GROUPS, TASKS)
    vector = lcm.pack(like) + np.random.default_rng(1).normal(0, 0.3, lcm.pack(like).size)
    seen = (by_group(x[:, :-1], GROUPS, 2), x[:, -1].astype(np.int64), y, np.full(14, 0.01))

    _, gradient = lcm.log_posterior(vector, like, seen)

    numeric = approx_fprime(vector, lambda v: lcm.log_posterior(v, like, seen)[0], 1e-6)
    assert gradient == pytest.approx(numeric, rel=1e-3, abs=1e-3)


def test_hyper_parameters_survive_packing() -> None:
    """Unpacking what was packed gives the same covariance."""
    model, x = lcm.prior(GROUPS, TASKS), points(6)

    again = lcm.unpack(lcm.pack(model), lcm.prior(GROUPS, TASKS))

    assert again.covariance(x, x) == pytest.approx(model.covariance(x, x))


def test_a_fit_sees_which_task_follows_the_target() -> None:
    """A task with the target's costs is coupled to it, one with the opposite costs the other way."""
    grid = np.array([[i / 11, j / 3] for i in range(12) for j in range(4)])
    y = np.sin(5 * grid[:, 0]) + grid[:, 1]
    y = (y - y.mean()) / y.std()
    x = np.vstack([np.hstack([grid, np.full((len(grid), 1), float(task))]) for task in range(TASKS)])

    fitted = lcm.fit(lcm.prior(GROUPS, TASKS), x, np.concatenate([y, y, -y]), np.zeros(len(x)))

    shared = fitted.coregionalisation().sum(axis=0)
    assert shared[0, 1] > 0.5 * np.sqrt(shared[0, 0] * shared[1, 1])
    assert shared[0, 2] < -0.5 * np.sqrt(shared[0, 0] * shared[2, 2])


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
    assert (knowledge.x[:, -1] == 2).sum() == POINTS  # the far one has more than are used
    assert knowledge.y[knowledge.x[:, -1] == 2].min() == pytest.approx(
        knowledge.y[knowledge.x[:, -1] == 2][0]
    )
    assert np.all(np.isfinite(knowledge.x))
    assert np.all(np.isfinite(knowledge.y))
    assert knowledge.y[knowledge.x[:, -1] == 1].std() == pytest.approx(1.0)
