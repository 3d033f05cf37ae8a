"""Kernels of the applications: right on the host in every form, no access astray, and no barrier too many."""

import json
from collections.abc import Mapping
from pathlib import Path

import host_build
import numpy as np
import pytest
from adaptive_kernels import CATALOGUE, check_answer, inputs_of, sample, sizes_of
from click.testing import CliRunner
from host_build import ADDRESSES, CHECKED, HostRunError
from thread_orders import in_turns

from tuner.cli.main import main
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import InputError
from tuner.model.plan import Plan, TunableValue
from tuner.problems.lookup import problem_for

Sizes = Mapping[str, int]

NAMES = ("hotspot", "lud", "particle-filter", "streamcluster")
KERNELS = {name: load_kernel_file(CATALOGUE / name / "kernel.toml") for name in NAMES}
ODD = {"ROWS": 37, "COLUMNS": 53, "STEPS": 7}
SMALL: dict[str, tuple[Sizes, ...]] = {
    "hotspot": (  # tiles not filled, one as small as a halo, a single row, a single column
        ODD,
        {"ROWS": 1, "COLUMNS": 1, "STEPS": 20},
        {"ROWS": 1, "COLUMNS": 67, "STEPS": 20},
        {"ROWS": 71, "COLUMNS": 1, "STEPS": 20},
        {"ROWS": 5, "COLUMNS": 3, "STEPS": 20},
        {"ROWS": 10, "COLUMNS": 11, "STEPS": 20},
    ),
    # within a block, beyond one, beyond the widest with and without a rest
    "lud": ({"N": 1}, {"N": 17}, {"N": 70}, {"N": 96}),
    "particle-filter": (  # blocks, frame and the block that scans sums: not filled, filled more than once
        {"N": 1, "H": 1, "W": 1},
        {"N": 131, "H": 37, "W": 20},
        {"N": 1060, "H": 16, "W": 64},
    ),
    "streamcluster": (  # blocks, unrolled loops and warps not filled, and filled
        {"N": 1, "DIM": 1, "K": 1, "CALLS": 3},
        {"N": 131, "DIM": 19, "K": 5, "CALLS": 3},
        {"N": 1030, "DIM": 9, "K": 2, "CALLS": 3},
    ),
}
IN_PAIRS = {**SMALL, "hotspot": ({**ODD, "STEPS": 20},), "lud": ({"N": 70},)}
SCAN: dict[str, TunableValue] = {
    "F": 64,
    "cdf_by": "scan",
    "S": 32,
    "search": "binary",
}  # of the particle filter
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def plan_of(name: str, sizes: Sizes, **values: TunableValue) -> Plan:
    """A plan with the default's values where none is given."""
    kernel = KERNELS[name]
    workload = kernel.workload(dict(sizes))
    default = dict(kernel.default(workload).items())
    return kernel.plan(workload, kernel.configuration(workload, {**default, **values}))


def plans(name: str, sizes: Sizes, flags: tuple[str, ...] = CHECKED, together: int = 1) -> list[Plan]:
    """Each value, or pair of values, of the tunables, compiled for the host."""
    made = sample(KERNELS[name], KERNELS[name].workload(dict(sizes)), together)
    host_build.build_plans(made, flags)
    return made


@on_host
@pytest.mark.parametrize(("name", "sizes"), [(name, sizes) for name in NAMES for sizes in SMALL[name]])
def test_values_give_right_answers(name: str, sizes: Sizes) -> None:
    """Each value of each tunable is right, with no race and nothing astray."""
    for plan in plans(name, sizes):
        check_answer(plan, CHECKED)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize("name", NAMES)
def test_pairs_of_values_give_right_answers(name: str) -> None:
    """Any two values that go together are right, the orders of the threads in turn."""
    for plan, order in in_turns(
        [plan for sizes in IN_PAIRS[name] for plan in plans(name, sizes, together=2)]
    ):
        check_answer(plan, CHECKED, order)


@on_host
@pytest.mark.parametrize(
    ("name", "count"),
    [pytest.param("lud", None, marks=pytest.mark.pairwise), ("particle-filter", 3), ("streamcluster", 3)],
)
def test_sanitizers_find_nothing(name: str, count: int | None) -> None:
    """The forms keep to their arrays and to what the language defines."""
    sizes = {"N": 70} if name == "lud" else SMALL[name][1]
    made = sample(KERNELS[name], KERNELS[name].workload(dict(sizes)))[:count]
    host_build.build_plans(made, ADDRESSES)
    for plan in made:
        check_answer(plan, ADDRESSES)


@on_host
@pytest.mark.pairwise
@pytest.mark.parametrize(
    ("name", "sizes", "values"),
    [
        ("hotspot", ODD, {"T": 2, "BUFFERS": 1, "POWER": "register"}),  # a step with one buffer
        (
            "particle-filter",
            SMALL["particle-filter"][2],
            {"B": 64, "P": 4, **SCAN},
        ),  # scans of several rounds
        ("streamcluster", SMALL["streamcluster"][1], {}),
    ],
)
def test_no_barrier_can_be_left_out(name: str, sizes: Sizes, values: dict[str, TunableValue]) -> None:
    """Both barriers are met, and without either the answer is wrong."""
    plan = plan_of(name, sizes, **values)
    check_answer(plan, CHECKED)
    barriers = {barrier.place: barrier for barrier in host_build.barriers_reached(plan)}
    assert len(barriers) == 2
    for barrier in barriers.values():
        with pytest.raises((AssertionError, HostRunError)):
            check_answer(plan, CHECKED, "forward", without=barrier)


@pytest.mark.parametrize(
    ("name", "size", "values"),
    [
        ("hotspot", "ROWS", [0]),
        ("hotspot", "COLUMNS", [65537]),
        ("hotspot", "STEPS", [0]),
        ("lud", "N", [0, 32769]),
        ("particle-filter", "N", [0, 2**24 + 1]),
        ("particle-filter", "H", [8193]),
        ("particle-filter", "W", [0]),
        ("streamcluster", "N", [0]),
        ("streamcluster", "DIM", [8193]),
        ("streamcluster", "K", [257]),
        ("streamcluster", "CALLS", [4]),
    ],
)
def test_bad_sizes_are_refused(name: str, size: str, values: list[int]) -> None:
    """The message names the size, and of a matrix the range."""
    for value in values:
        with pytest.raises(InputError, match="1 to 32768" if name == "lud" else size):
            KERNELS[name].workload({**SMALL[name][1], size: value})


@pytest.mark.parametrize(
    "workload",
    [
        "hotspot:ROWS=4096,COLUMNS=4096",
        "particle-filter:N=100000,H=128,W=128",
        "streamcluster:N=65536,DIM=256,K=16",
    ],
)
def test_runs_on_a_simulated_device(workload: str, tmp_path: Path) -> None:
    """A search finds its way through the stages."""
    document = tmp_path / "run.json"
    arguments = ["run", workload, "--device", "sim:h200", "--objective", "time", "--policy", "analytical"]
    arguments += ["--database", str(tmp_path / "tuner.db"), "--json", str(document)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert {trial["status"] for trial in json.loads(document.read_text())["trials"]} == {"ok"}


# --- particle filter ------------------------------------------------------------------------------


@on_host
def test_sums_of_many_blocks_are_scanned_in_rounds() -> None:
    """One block scans more sums than it has threads."""
    plan = plan_of("particle-filter", SMALL["particle-filter"][2], B=32, P=1, **SCAN)
    assert plan.stages[0].grid[0] > 32
    check_answer(plan, CHECKED)


@on_host
def test_the_distribution_and_what_is_drawn_from_it() -> None:
    """It never falls and ends at 1; likely particles are drawn several times, others not at all."""
    plan = plan_of("particle-filter", SMALL["particle-filter"][1])
    outputs = host_build.run_plan_on_host(plan, inputs_of(plan), flags=CHECKED)
    cdf, index = outputs["cdf"], outputs["index"]
    assert (np.diff(cdf) > 0).all()
    assert abs(cdf[-1] - 1) < 1e-14
    np.testing.assert_array_equal(index, np.searchsorted(cdf, (np.arange(131) + 0.5) / 131))
    assert 26 < len(set(index.tolist())) < 120


@on_host
@pytest.mark.parametrize(
    ("output", "place", "change"), [("cdf", 40, -1e-9), ("index", 130, -1), ("new_x", 0, 1e-9)]
)
def test_the_law_finds_what_is_wrong(output: str, place: int, change: float) -> None:
    """A single element that differs is a wrong answer."""
    plan = plan_of("particle-filter", SMALL["particle-filter"][1])
    inputs = inputs_of(plan)
    outputs = host_build.run_plan_on_host(plan, inputs, flags=CHECKED)
    problem = problem_for(plan.problem)
    assert problem.residual(np, inputs, outputs, sizes_of(plan)).ok
    outputs[output][place] += outputs[output].dtype.type(change)
    assert not problem.residual(np, inputs, outputs, sizes_of(plan)).ok


def test_many_particles_leave_the_fast_forms() -> None:
    """What takes one thread, or a number of steps that grows with the square, is for fewer."""
    kernel = KERNELS["particle-filter"]
    space = kernel.space(kernel.workload({"N": 2**18 + 1, "H": 128, "W": 128}))
    assert all("search" not in dict(one.items()) and "cdf_by" not in dict(one.items()) for one in space)


# --- streamcluster --------------------------------------------------------------------------------


@on_host
def test_gains_say_what_switches() -> None:
    """A candidate saves its own cost; the last column adds up what all points save."""
    plan = plan_of("streamcluster", SMALL["streamcluster"][1])
    inputs = inputs_of(plan)
    outputs = host_build.run_plan_on_host(plan, inputs, flags=CHECKED)
    for call in range(3):
        candidate = call * 7919 % 131
        assert outputs["saving"][call, candidate] == inputs["cost"][candidate]
    np.testing.assert_allclose(outputs["gain"][:, -1], outputs["saving"].sum(axis=1), rtol=1e-5)
    assert 0.1 < np.mean(outputs["saving"] > 0) < 0.9
