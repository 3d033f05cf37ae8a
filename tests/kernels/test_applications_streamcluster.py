"""The gain of opening a centre: right on the host in every form, and no access astray."""

import json
from pathlib import Path

import host_build
import numpy as np
import pytest
from adaptive_kernels import CATALOGUE, check_answer, inputs_of, sample
from click.testing import CliRunner
from host_build import ADDRESSES, CHECKED, HostRunError
from thread_orders import in_turns

from tuner.cli.main import main
from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.errors import InputError
from tuner.model.plan import Plan

KERNEL = load_kernel_file(CATALOGUE / "streamcluster" / "kernel.toml")
SMALL = (  # blocks, unrolled loops and warps not filled, and filled
    {"N": 1, "DIM": 1, "K": 1, "CALLS": 3},
    {"N": 131, "DIM": 19, "K": 5, "CALLS": 3},
    {"N": 1030, "DIM": 9, "K": 2, "CALLS": 3},
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
@pytest.mark.pairwise
def test_no_barrier_can_be_left_out() -> None:
    """The default meets both barriers, and without either it fails."""
    workload = KERNEL.workload(SMALL[1])
    plan = KERNEL.plan(workload, KERNEL.default(workload))
    check_answer(plan, CHECKED)
    barriers = {barrier.place: barrier for barrier in host_build.barriers_reached(plan)}
    assert len(barriers) == 2
    for barrier in barriers.values():
        with pytest.raises((AssertionError, HostRunError)):
            check_answer(plan, CHECKED, "forward", without=barrier)


@on_host
def test_gains_say_what_switches() -> None:
    """A candidate saves its own cost; the last column adds up what all points save."""
    workload = KERNEL.workload(SMALL[1])
    plan = KERNEL.plan(workload, KERNEL.default(workload))
    inputs = inputs_of(plan)
    outputs = host_build.run_plan_on_host(plan, inputs, flags=CHECKED)
    for call in range(3):
        candidate = call * 7919 % 131
        assert outputs["saving"][call, candidate] == inputs["cost"][candidate]
    np.testing.assert_allclose(outputs["gain"][:, -1], outputs["saving"].sum(axis=1), rtol=1e-5)
    assert 0.1 < np.mean(outputs["saving"] > 0) < 0.9


@pytest.mark.parametrize(("name", "value"), [("N", 0), ("DIM", 8193), ("K", 257), ("CALLS", 4)])
def test_bad_sizes_are_refused(name: str, value: int) -> None:
    """The message names the size."""
    with pytest.raises(InputError, match=name):
        KERNEL.workload({**SMALL[1], name: value})


def test_runs_on_a_simulated_device(tmp_path: Path) -> None:
    """A search finds its way through the chain."""
    document = tmp_path / "run.json"
    arguments = ["run", "streamcluster:N=65536,DIM=256,K=16", "--device", "sim:h200", "--objective", "time"]
    arguments += ["--policy", "analytical", "--database", str(tmp_path / "tuner.db"), "--json", str(document)]
    result = CliRunner().invoke(main, arguments)
    assert result.exit_code == 0, result.output
    assert {trial["status"] for trial in json.loads(document.read_text())["trials"]} == {"ok"}
