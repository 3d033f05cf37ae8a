"""One frame of a particle filter: right on the host in every form, and no access astray."""

import json
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
from tuner.model.plan import Plan
from tuner.problems.lookup import problem_for

KERNEL = load_kernel_file(CATALOGUE / "particle-filter" / "kernel.toml")
SMALL = (  # blocks, the frame and the block that scans sums not filled, and filled more than once
    {"N": 1, "H": 1, "W": 1},
    {"N": 131, "H": 37, "W": 20},
    {"N": 1060, "H": 16, "W": 64},
)
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def plans(flags: tuple[str, ...] = CHECKED, together: int = 1) -> list[Plan]:
    """Each value, or pair of values, of the tunables at each of the small sizes, compiled for the host."""
    made = [plan for sizes in SMALL for plan in sample(KERNEL, KERNEL.workload(sizes), together)]
    host_build.build_plans(made, flags)
    return made


@on_host
def test_values_give_right_answers() -> None:
    """Each value of each tunable is right, with no race and nothing astray."""
    for plan in plans():
        check_answer(plan, CHECKED)


@on_host
@pytest.mark.pairwise
def test_pairs_of_values_give_right_answers() -> None:
    """Any two values that go together are right, the orders of the threads in turn."""
    for plan, order in in_turns(plans(together=2)):
        check_answer(plan, CHECKED, order)


@on_host
def test_sanitizers_find_nothing() -> None:
    """The forms keep to their arrays and to what the language defines."""
    made = sample(KERNEL, KERNEL.workload(SMALL[1]))[:3]
    host_build.build_plans(made, ADDRESSES)
    for plan in made:
        check_answer(plan, ADDRESSES)


@on_host
def test_sums_of_many_blocks_are_scanned_in_rounds() -> None:
    """One block scans more sums than it has threads."""
    values: dict[str, int | str] = {"B": 32, "P": 1, "F": 64, "cdf_by": "scan", "S": 32, "search": "binary"}
    workload = KERNEL.workload(SMALL[2])
    plan = KERNEL.plan(workload, KERNEL.configuration(workload, values))
    assert plan.stages[0].grid[0] > 32
    check_answer(plan, CHECKED)


@on_host
@pytest.mark.pairwise
def test_no_barrier_can_be_left_out() -> None:
    """Scans of several rounds meet both barriers, and without either they fail."""
    values: dict[str, int | str] = {"B": 64, "P": 4, "F": 64, "cdf_by": "scan", "S": 32, "search": "binary"}
    workload = KERNEL.workload(SMALL[2])
    plan = KERNEL.plan(workload, KERNEL.configuration(workload, values))
    host_build.build_plans([plan], CHECKED)
    check_answer(plan, CHECKED)
    barriers = {barrier.place: barrier for barrier in host_build.barriers_reached(plan)}
    assert len(barriers) == 2
    for barrier in barriers.values():
        with pytest.raises((AssertionError, HostRunError)):
            check_answer(plan, CHECKED, "forward", without=barrier)


@on_host
def test_the_distribution_and_what_is_drawn_from_it() -> None:
    """It never falls and ends at 1; likely particles are drawn several times, others not at all."""
    workload = KERNEL.workload(SMALL[1])
    plan = KERNEL.plan(workload, KERNEL.default(workload))
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
    workload = KERNEL.workload(SMALL[1])
    plan = KERNEL.plan(workload, KERNEL.default(workload))
    inputs = inputs_of(plan)
    outputs = host_build.run_plan_on_host(plan, inputs, flags=CHECKED)
    problem = problem_for(plan.problem)
    assert problem.residual(np, inputs, outputs, sizes_of(plan)).ok
    outputs[output][place] += outputs[output].dtype.type(change)
    assert not problem.residual(np, inputs, outputs, sizes_of(plan)).ok


@pytest.mark.parametrize(("name", "value"), [("N", 0), ("N", 2**24 + 1), ("H", 8193), ("W", 0)])
def test_bad_sizes_are_refused(name: str, value: int) -> None:
    """The message names the size."""
    with pytest.raises(InputError, match=name):
        KERNEL.workload({**SMALL[1], name: value})


def test_many_particles_leave_the_fast_forms() -> None:
    """What takes one thread, or a number of steps that grows with the square, is for fewer."""
    space = KERNEL.space(KERNEL.workload({"N": 2**18 + 1, "H": 128, "W": 128}))
    assert all("search" not in dict(one.items()) and "cdf_by" not in dict(one.items()) for one in space)


def test_runs_on_a_simulated_device(tmp_path: Path) -> None:
    """A search finds its way through the stages."""
    document = tmp_path / "run.json"
    arguments = ["run", "particle-filter:N=100000,H=128,W=128", "--device", "sim:h200", "--objective", "time"]
    arguments += ["--policy", "analytical", "--database", str(tmp_path / "tuner.db"), "--json", str(document)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert {trial["status"] for trial in json.loads(document.read_text())["trials"]} == {"ok"}
