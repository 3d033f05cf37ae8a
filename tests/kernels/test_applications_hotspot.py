"""Steps of the heat equation: right on the host in every form, at any size, and what is wrong is noticed."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import pytest
from adaptive_kernels import CATALOGUE, check_answer, inputs_of, sample, sizes_of
from compiled_stages import compiled_stages
from host_build import ADDRESSES, CHECKED
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.plan import Plan, StructValue, TunableValue
from tuner.problems.lookup import problem_for

KERNEL = load_kernel_file(CATALOGUE / "hotspot" / "kernel.toml")
ODD = {"ROWS": 37, "COLUMNS": 53, "STEPS": 7}
ARCHITECTURES = (53, 72, 87, 90, 120)
AMBIENT = 80.0
on_host = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def plan_at(sizes: Mapping[str, int], **values: TunableValue) -> Plan:
    """A plan with the default's values where none is given."""
    workload = KERNEL.workload(dict(sizes))
    if values.get("T", 1) != 1:
        values = {"BUFFERS": 1, "POWER": "register", **values}
    default = dict(KERNEL.default(workload).items())
    return KERNEL.plan(workload, KERNEL.configuration(workload, {**default, **values}))


def heated(plan: Plan, inputs: Mapping[str, NDArray[Any]]) -> NDArray[Any]:
    """Temperatures behind the steps, of a plan run on the host."""
    return host_build.run_plan_on_host(plan, inputs, flags=CHECKED)["after"]


@on_host
def test_sanitizers_find_nothing() -> None:
    """The forms keep to their arrays and to what the language defines."""
    made = [plan_at(ODD, T=2, POWER=power, BUFFERS=2) for power in KERNEL.tunables["POWER"]]
    host_build.build_plans(made, ADDRESSES)
    for plan in made:
        check_answer(plan, ADDRESSES)


@on_host
@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("max(i, -1 - i)", "max(i, -i)"),  # the border cell is not its own neighbour
        ("2 * n - 1 - i", "2 * n - 2 - i"),
        ("x < T ||", "x < T - (column > 0) ||"),  # halo too small
        ("in_tile < tall - T", "in_tile < tall - T + 1"),
        ("c.down * upright", "c.across * upright"),
        ("c.heat * watts", "c.heat"),
        ("c.away * now", "0.0f"),
        ("above = now", "above = t[r]"),  # the new temperature, not the old
    ],
)
def test_planted_faults_are_noticed(right: str, wrong: str) -> None:
    """Each part of a step, and of what lies around a tile, shows in the answer."""
    plan = plan_at(ODD, T=2, R=2)
    text = plan.stages[0].source.text
    assert text.count(right) == 1
    faulty = [
        replace(stage, source=replace(stage.source, text=text.replace(right, wrong))) for stage in plan.stages
    ]
    with pytest.raises(AssertionError, match="temperatures"):
        check_answer(replace(plan, stages=tuple(faulty)), CHECKED)


@on_host
def test_the_air_around_keeps_its_temperature() -> None:
    """A chip without power, as warm as what is around, stays so to the bit."""
    made = sample(KERNEL, KERNEL.workload(dict(ODD)))
    host_build.build_plans(made, CHECKED)
    for plan in made:
        inputs = {"before": np.full((37, 53), AMBIENT, np.float32), "power": np.zeros((37, 53), np.float32)}
        assert (heated(plan, inputs) == AMBIENT).all()


@on_host
@settings(max_examples=10)
@given(st.integers(3, 40), st.integers(3, 40), st.integers(0, 2**32 - 1))
def test_rows_and_columns_are_alike(rows: int, columns: int, seed: int) -> None:
    """The transposed chip has the transposed temperatures."""
    rng = np.random.default_rng(seed)
    inputs = {
        "before": rng.uniform(60, 100, (rows, columns)).astype(np.float32),
        "power": np.zeros((rows, columns), np.float32),
    }
    turned = {name: np.ascontiguousarray(array.T) for name, array in inputs.items()}
    upright, lying = (
        heated(plan_at({"ROWS": high, "COLUMNS": wide, "STEPS": 7}, X=32, R=2, T=3), given)
        for high, wide, given in ((rows, columns, inputs), (columns, rows, turned))
    )
    np.testing.assert_allclose(upright, lying.T, rtol=1e-6)


@on_host
def test_no_cell_leaves_the_range_of_temperatures() -> None:
    """Without power none gets warmer or colder than all: a board of two temperatures is the hardest case."""
    plan = plan_at({**ODD, "STEPS": 20}, X=32, R=2, T=4)
    row, column = np.ogrid[:37, :53]
    board = np.where((row + column) % 2, 60, 100).astype(np.float32)
    after = heated(plan, {"before": board, "power": np.zeros_like(board)})
    assert after.min() > 60
    assert after.max() < 100


@on_host
def test_powers_add_up() -> None:
    """Two sources of heat together warm the chip by what both do."""
    plan = plan_at(ODD, X=32, R=2, T=4)
    inputs = inputs_of(plan)
    first, second = np.zeros((2, 37, 53), np.float32)
    first[3, 50], second[36, 0] = 20.0, 10.0
    none, one, other, both = (
        heated(plan, {**inputs, "power": power}).astype(np.float64)
        for power in (np.zeros_like(first), first, second, first + second)
    )
    assert np.abs(one - none).max() > 1
    np.testing.assert_allclose(one + other - none, both, atol=1e-3)


@pytest.mark.parametrize("rows", [1, 300, 4096, 65536])
@pytest.mark.parametrize("columns", [1, 17, 8192, 65536])
def test_steps_are_stable_at_any_size(rows: int, columns: int) -> None:
    """What a step takes of a cell is half of it, however small the cells are."""
    (value,) = (
        a
        for a in plan_at({"ROWS": rows, "COLUMNS": columns}).stages[0].arguments
        if isinstance(a, StructValue)
    )
    _, across, down, away, ambient = np.frombuffer(value.bytes, np.float32).astype(float)
    assert min(across, down, away) > 0
    assert 2 * across + 2 * down + away == pytest.approx(0.5, rel=1e-6)
    assert down * columns**2 == pytest.approx(across * rows**2, rel=1e-6)
    assert ambient == AMBIENT


@pytest.mark.parametrize("where", [(slice(None), 512), (700, slice(None))], ids=["column", "row"])
def test_strips_of_a_large_grid_show_faults(where: Any) -> None:
    """A line of cells that a step forgot is found where not all cells are looked at."""
    workload = KERNEL.workload({"ROWS": 900, "COLUMNS": 1000, "STEPS": 20})
    plan = KERNEL.plan(workload, KERNEL.default(workload))
    inputs = {"before": np.full((900, 1000), AMBIENT, np.float32), "power": np.zeros((900, 1000), np.float32)}
    after = inputs["before"].copy()
    problem = problem_for(plan.problem)
    assert problem.residual(np, inputs, {"after": after}, sizes_of(plan)).ok
    after[where] += 0.01
    assert not problem.residual(np, inputs, {"after": after}, sizes_of(plan)).ok


def test_halos_are_no_larger_than_the_grid() -> None:
    """A cell has one mirror image: no tile reaches further beyond a border than the grid is wide."""
    workload = KERNEL.workload({"ROWS": 3, "COLUMNS": 4096})
    assert {dict(one.items())["T"] for one in KERNEL.space(workload)} == {1, 2, 3}


def test_launches_share_the_steps() -> None:
    """The last launch makes what is left of them."""
    steps = [stage.arguments[-1].value for stage in plan_at(ODD, X=32, R=2, T=3).stages]  # type: ignore[union-attr]
    assert steps == [3, 3, 1]


@pytest.mark.parametrize("architecture", ARCHITECTURES)
def test_values_compile(architecture: int, cubins: Path) -> None:
    """Each value of each tunable compiles for old and new devices."""
    stages = [plan.stages[0] for plan in sample(KERNEL, KERNEL.workload({"ROWS": 4096, "COLUMNS": 4096}))]
    assert len(compiled_stages(stages, f"sm_{architecture}", cubins)) == len(stages)
