"""The kernels with pragmas: right on the host at any size, and what a person would write by hand."""

import functools
import json
import math
import re
from collections.abc import Mapping
from pathlib import Path

import host_build
import numpy as np
import pytest
from adaptive_kernels import (
    HAND_WRITTEN,
    KERNELS,
    SMALL,
    barriers_not_missed,
    by_hand,
    check_answer,
    ready,
    sample,
    small_plans,
)
from click.testing import CliRunner
from compiled_stages import compiled_stages
from examples import FEW
from host_build import ADDRESSES, CHECKED, HostRunError
from hypothesis import given
from hypothesis import strategies as st
from thread_orders import in_turns

from tuner.cli.main import main
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Configuration, Plan, Workload

ARCHITECTURES = (53, 72, 87, 90, 100, 120)  # Jetson TX1, Xavier, Orin, Hopper, Blackwell's two
LARGE: Mapping[str, Mapping[str, int | str]] = {  # sizes at which every tunable has a value
    "convolution-columns": {"H": 1080, "W": 1920, "R": 8},
    "convolution-rows": {"H": 1080, "W": 1920, "R": 8},
    "matmul-split-k": {"M": 128, "N": 256, "K": 4096},
    "mvmul": {"H": 300, "W": 8192},
    "reduction": {"N": 10**8},
    "scalar-product": {"P": 100, "L": 100000},
    "transpose": {"H": 1000, "W": 2000},
    "transpose-naive": {"H": 1000, "W": 2000},
}
MOST_ELEMENTS = 2**10  # of an array of a random size
MOST_OF_ALL = 2**31  # elements of the largest arrays
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")
each = pytest.mark.parametrize("kernel", KERNELS.values(), ids=KERNELS)


def compiled_plans(kernel: KernelFile, flags: tuple[str, ...] = CHECKED, together: int = 1) -> list[Plan]:
    """The sample at small sizes, compiled for the host."""
    plans = [ready(plan) for plan in small_plans(kernel, together)]
    host_build.build_plans(plans, flags)
    return plans


def large(kernel: KernelFile) -> Workload:
    return kernel.workload(LARGE[kernel.name])


@on_host
@each
def test_values_give_right_answers(kernel: KernelFile) -> None:
    """Each value of each tunable is right at odd sizes, with no race and nothing astray."""
    for plan in compiled_plans(kernel):
        check_answer(plan, CHECKED)


@on_host
@pytest.mark.pairwise
@each
def test_pairs_of_values_give_right_answers(kernel: KernelFile) -> None:
    """Any two values that go together are right, the orders of the threads in turn."""
    for plan, order in in_turns(compiled_plans(kernel, together=2)):
        check_answer(plan, CHECKED, order)


@on_host
@pytest.mark.pairwise
@each
def test_sanitizers_find_nothing(kernel: KernelFile) -> None:
    """Each value of each tunable keeps to its arrays and to what the language defines."""
    for plan in compiled_plans(kernel, ADDRESSES):
        check_answer(plan, ADDRESSES)


@on_host
@pytest.mark.pairwise
@each
def test_no_barrier_can_be_left_out(kernel: KernelFile) -> None:
    """Every barrier of the source is met, and without any one some configuration fails."""
    assert not barriers_not_missed(compiled_plans(kernel, together=2))


@on_host
@each
def test_arrays_that_are_too_short_are_noticed(kernel: KernelFile) -> None:
    """Where any array ends one element early, the access behind its end fails the launch."""
    plan = compiled_plans(kernel)[0]
    whole = {b.name: np.zeros(b.shape, b.dtype) for b in plan.buffers}
    used = {name for stage in plan.stages for name in stage.arguments}
    for buffer in plan.buffers:
        if buffer.name in used and buffer.role in ("in", "out"):
            short = {**whole, buffer.name: whole[buffer.name].ravel()[:-1]}
            with pytest.raises(HostRunError, match="past the end of argument"):
                host_build.run_plan(plan, short, flags=CHECKED)


@functools.cache
def known_configurations(name: str, sizes: tuple[tuple[str, int | str], ...]) -> list[Configuration]:
    """Some configurations of a kernel at sizes that hold each value."""
    kernel = KERNELS[name]
    return [plan.configuration for plan in sample(kernel, kernel.workload(dict(sizes)))]


@on_host
@each
@FEW
@given(data=st.data())
def test_any_size_is_right(kernel: KernelFile, data: st.DataObject) -> None:
    """At random sizes, the default and a configuration that small sizes have give the right answer."""
    first = data.draw(st.sampled_from(SMALL[kernel.name]))
    sizes = dict(first)
    left = MOST_ELEMENTS
    for name in (name for name, values in kernel.sizes.items() if isinstance(values, range)):
        sizes[name] = data.draw(st.integers(1, left), name)
        left = max(left // int(sizes[name]), 1)
    workload = kernel.workload(sizes)
    known = known_configurations(kernel.name, tuple(first.items()))
    allowed = [one for one in known if kernel.allowed(workload, dict(one.items())) == one]
    chosen = data.draw(st.sampled_from([kernel.default(workload), *allowed]))
    check_answer(ready(kernel.plan(workload, chosen)), CHECKED)


@functools.cache
def documented_counts() -> dict[str, tuple[int, int]]:
    """Kernel -> fewest and most configurations, from the table of docs/lab/kernels/kernels.md."""
    text = (Path(__file__).parents[2] / "docs/lab/kernels/kernels.md").read_text()
    rows = re.findall(r"^\| `([\w-]+)` \|.*\| (?:(\d+) … )?(\d+) \|$", text, re.MULTILINE)
    return {name: (int(fewest or most), int(most)) for name, fewest, most in rows}


@each
@given(data=st.data())
def test_spaces_hold_at_any_size(kernel: KernelFile, data: st.DataObject) -> None:
    """At any sizes: as many configurations as kernels.md says, the default among them, all planned."""
    sizes: dict[str, int | str] = {}
    left = MOST_OF_ALL
    for name, values in kernel.sizes.items():
        if isinstance(values, range):
            number = int(2 ** data.draw(st.floats(0, math.log2(min(left, values[-1]))), name))
            sizes[name], left = number, left // number
        else:
            sizes[name] = data.draw(st.sampled_from(values), name)
    workload = kernel.workload(sizes)
    space = kernel.space(workload)
    fewest, most = documented_counts()[kernel.name]
    assert fewest <= len(space) <= most
    assert kernel.default(workload) in space
    plan = kernel.plan(workload, data.draw(st.sampled_from(list(space))))
    assert all(stage.threads_per_block <= 1024 and min(stage.grid) >= 1 for stage in plan.stages)


@each
def test_compiles_for_devices_old_and_new(kernel: KernelFile, cubins: Path) -> None:
    """The default compiles for every architecture and spills nothing, each value for one of them."""
    default, *others = sample(kernel, large(kernel))
    for place, architecture in enumerate(ARCHITECTURES):
        plans = [default, *others[place :: len(ARCHITECTURES)]]
        made = compiled_stages(
            [stage for plan in plans for stage in plan.stages], f"sm_{architecture}", cubins
        )
        spilled = [one.resources.spill_bytes for one in made[: len(default.stages)]]
        assert not any(spilled)


@each
def test_pragmas_mean_what_is_written_by_hand(kernel: KernelFile, cubins: Path) -> None:
    """The hand-written kernel file has the same space, default, launches and, byte by byte, the same code."""
    written = by_hand(kernel.name)
    for sizes in (*SMALL[kernel.name], LARGE[kernel.name]):
        workload = kernel.workload(sizes)
        assert written.workload(sizes) == workload
        assert {frozenset(one.items()) for one in kernel.space(workload)} == {
            frozenset(one.items()) for one in written.space(workload)
        }
        assert dict(kernel.default(workload).items()) == dict(written.default(workload).items())
    plans = sample(kernel, large(kernel))
    others = [
        written.plan(plan.workload, written.configuration(plan.workload, dict(plan.configuration.items())))
        for plan in plans
    ]
    assert plans[0].problem.tolerance == others[0].problem.tolerance
    for plan, other in zip(plans, others, strict=True):
        assert launches(plan) == launches(other)
        assert {(b.name, b.shape, b.dtype, b.role, b.input) for b in plan.buffers} == {
            (b.name, b.shape, b.dtype, b.role, b.input) for b in other.buffers
        }
    made = compiled_stages([stage for plan in plans for stage in plan.stages], "sm_90", cubins)
    by_a_person = compiled_stages([stage for plan in others for stage in plan.stages], "sm_90", cubins)
    assert [one.cubin for one in made] == [one.cubin for one in by_a_person]


def launches(plan: Plan) -> list[tuple[object, ...]]:
    return [
        (stage.entry, stage.grid, stage.block, stage.shared_bytes, stage.arguments) for stage in plan.stages
    ]


def test_every_kernel_is_known_here() -> None:
    """The hand-written files, the sizes of these tests and the page are of all kernels with pragmas."""
    assert {path.stem for path in HAND_WRITTEN.glob("*.toml")} == set(KERNELS)
    assert set(SMALL) == set(LARGE) == set(documented_counts()) == set(KERNELS)


@pytest.mark.parametrize("name", ["mvmul", "reduction"])
def test_runs_on_a_simulated_device(name: str, tmp_path: Path) -> None:
    """A policy finds its way through tunables with a condition, texts and two launches."""
    document = tmp_path / "run.json"
    arguments = ["run", str(large(KERNELS[name])), "--device", "sim:h200", "--policy", "greedy"]
    arguments += ["--budget", "3"]
    result = CliRunner().invoke(
        main, [*arguments, "--database", str(tmp_path / "tuner.db"), "--json", str(document)]
    )
    assert result.exit_code == 0, result.output
    trials = json.loads(document.read_text())["trials"]
    assert [trial["status"] for trial in trials] == ["ok"] * 3
