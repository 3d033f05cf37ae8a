"""Every kernel of the catalogue compiles for devices old and new, and nothing spills unseen."""

import functools
import re
from collections.abc import Iterable, Sequence
from pathlib import Path

import pytest
from compiled_stages import compiled_stages
from kernel_samples import (
    KERNELS,
    Row,
    all_sizes,
    defaults_at,
    kin,
    pairs_of,
    pairs_of_ways,
    plan_of,
    rows_at,
    sampled,
    shown,
    small_sizes,
    workloads,
)

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.compiler.contract import misfit
from tuner.kernel_files.formulas import derived_for
from tuner.kernel_files.stage_recipe import StageRecipe
from tuner.model.plan import Source, Stage, TunableValue

ARCHITECTURES = (53, 72, 87, 90)  # Jetson TX1, Xavier, Orin, Hopper
PAIRED = (53, 90)  # the oldest and the newest: what goes for both goes between
LAUNCH_ONLY = ("cap",)  # tunables that no stage's code knows
FAMILIES = {", ".join(k.name for k in kin(kernel)): kin(kernel) for kernel in KERNELS.values()}


def on_devices(rows: Iterable[Row], architectures: Sequence[int] = ARCHITECTURES) -> list[Row]:
    """The rows once for each architecture that runs them."""
    known: dict[tuple[tuple[str, TunableValue], ...], int] = {}
    found = []
    for row in rows:
        names = names_of_architecture(str(row["kernel"]))
        key = tuple((name, row[name]) for name in ("kernel", *names) if name in row)
        if key not in known:
            known[key] = max(stage.min_architecture for stage in plan_of(row).stages)
        found += [{**row, "architecture": one} for one in architectures if known[key] <= one]
    return found


@functools.cache
def names_of_architecture(kernel: str) -> list[str]:
    """The sizes and tunables that decide which architectures run a configuration."""
    recipe = KERNELS[kernel].recipe
    launches = [stage for stage in recipe.stages if isinstance(stage, StageRecipe)]
    asked = [one for stage in launches for one in (stage.when, stage.min_architecture, stage.cluster)]
    names = frozenset[str]().union(*(one.expression.names for one in asked if one is not None))
    derived = derived_for(names, recipe.derived)
    names = names.union(*(one.expression.names for one in derived.values()))
    return sorted(names)


def compiled(rows: Sequence[Row], cubins: Path) -> list[tuple[Stage, CompiledStage]]:
    """Every stage of the rows, compiled for the architecture of each; all compile, and fit their launches."""
    results: list[tuple[Stage, CompiledStage]] = []
    for architecture in ARCHITECTURES:
        plans = [plan_of(row) for row in rows if row["architecture"] == architecture]
        launches = [(plan, stage) for plan in plans for stage in plan.stages]
        stages = [stage for _, stage in launches]
        made = compiled_stages(stages, f"sm_{architecture}", cubins)
        misfits = [misfit(*one, code) for one, code in zip(launches, made, strict=True)]
        assert not any(misfits), next(filter(None, misfits))
        results += zip(stages, made, strict=True)
    return results


def check_no_spills(results: Sequence[tuple[Stage, CompiledStage]]) -> None:
    for stage, result in results:
        made = result.resources
        assert (made.spill_bytes, made.local_bytes) == (0, 0), f"{stage.entry} for {made.architecture}"


def check_report(results: Sequence[tuple[Stage, CompiledStage]]) -> None:
    """Whatever ptxas says of memory that a thread takes for its registers is in the resources."""
    memory = r"(\d+) bytes stack frame, (\d+) bytes spill stores, (\d+) bytes spill loads"
    for stage, result in results:
        frames, stores, loads = (sum(map(int, n)) for n in zip(*re.findall(memory, result.log), strict=True))
        resources = result.resources
        assert (resources.local_bytes, resources.spill_bytes) == (frames, stores + loads), stage.entry
        assert resources.static_shared_bytes + stage.shared_bytes <= 227 * 1024, stage.entry


@functools.cache
def small_rows(family: str) -> list[Row]:
    """Every configuration of a family's kernels at small sizes, once for each device of ``PAIRED``."""
    return on_devices(rows_at([s for kernel in FAMILIES[family] for s in small_sizes(kernel)]), PAIRED)


def is_compiled(name: str) -> bool:
    return name not in LAUNCH_ONLY


@pytest.mark.pairwise
@pytest.mark.parametrize("family", FAMILIES)
def test_values_compile(family: str, cubins: Path) -> None:
    """Any value of a family's kernels compiles, for the oldest device or the newest; spills are reported."""
    check_report(compiled(sampled(small_rows(family), is_compiled, together=1), cubins))


@pytest.mark.pairwise
@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_of_ways_compile(family: str, cubins: Path) -> None:
    """Any two ways that go together, and any with each device that has it, compile; spills are reported.

    Pairs of numbers repeat the same code: g++ takes them in ``test_kernels_host.py``.
    """
    check_report(compiled(pairs_of_ways(small_rows(family)), cubins))


@pytest.mark.exhaustive
@pytest.mark.parametrize("family", FAMILIES)
def test_pairs_of_values_compile(family: str, tmp_path: Path) -> None:
    """Any two values that go together, and any with each device that has it, compile; spills are reported."""
    check_report(compiled(pairs_of(small_rows(family), LAUNCH_ONLY), tmp_path))


@pytest.mark.parametrize("name", KERNELS)
def test_defaults_run_anywhere_without_spills(name: str, cubins: Path) -> None:
    """The default, at the smallest and the largest problem, is for every device and spills nothing."""
    largest = list(workloads(KERNELS[name], [KERNELS[name].sizes["N"][-1]]))
    rows = on_devices(defaults_at([*small_sizes(KERNELS[name])[:1], *largest[:1]]))
    assert {row["architecture"] for row in rows} == set(ARCHITECTURES)
    check_no_spills(compiled(rows, cubins))


@pytest.mark.exhaustive
@pytest.mark.parametrize("sizes", all_sizes(), ids=shown)
def test_every_configuration_compiles(sizes: Row, tmp_path: Path) -> None:
    """Whatever a search may try, at any size that is listed, compiles for every device that runs it."""
    check_report(compiled(on_devices(rows_at([sizes])), tmp_path))
    check_no_spills(compiled(on_devices(defaults_at([sizes])), tmp_path))


def test_spills_are_seen(tmp_path: Path) -> None:
    """A kernel that is given too few registers reports the bytes it spills."""
    code = "__global__ void sums(const float* x, float* y) {\n    float v[64];\n"
    code += "    for (int i = 0; i < 64; ++i) v[i] = x[i];\n"
    code += "    for (int i = 0; i < 64; ++i) y[i] = v[i] * v[63 - i] + v[i / 2];\n}"
    source = Source("sums.cu", code)
    stage = Stage("sums", source, "sums", ("--maxrregcount=24",), (1, 1, 1), (32, 1, 1), 0, ("x", "y"))
    with Compiler("sm_90", tmp_path) as nvrtc:
        result = nvrtc.compile_one(stage)
    assert result.resources.spill_bytes > 0
    check_report([(stage, result)])
