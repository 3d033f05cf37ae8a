"""The kernel file of the long transforms: right launches, a space to search, lean code."""

import hashlib
import json
from collections.abc import Iterable
from dataclasses import fields, is_dataclass
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import pytest
from compiled_stages import compiled_stages
from host_compile import check_syntax
from long_transforms import FOLDER, check, numbers

from tuner.kernel_files.catalog import load_kernel_file
from tuner.model.plan import Plan, Source, Workload

KERNEL = load_kernel_file(FOLDER / "kernel.toml")
SIZES = [int(N) for N in KERNEL.sizes["N"]]
SEED = 7
# of the file as it was when every configuration had all tunables; those that meant nothing in its form apart
BEFORE = json.loads((Path(__file__).parent / "fft_large_spaces.json").read_text())
NEW_FIELDS = {
    "input",
    "restored",
    "assumed",
    "cleared",
    "system_headers",
    "files",
    "function",
    "entry",
    "scalars",
    "demands",
    "code",
}

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


def plans(N: int, form: str, count: int, batch: int | None = None) -> list[Plan]:
    """Seeded configurations of a form."""
    workload = KERNEL.workload({"N": N}, batch)
    space = [c for c in KERNEL.space(workload) if c["form"] == form]
    drawn = np.random.default_rng(SEED).choice(len(space), min(count, len(space)), replace=False)
    return [KERNEL.plan(workload, space[i]) for i in drawn]


@needs_compiler
@pytest.mark.parametrize("direction", ["forward", "inverse"])
@pytest.mark.parametrize("N", [8192, 16384])
def test_the_kernel_file_launches_its_passes(N: int, direction: str) -> None:
    """The default and seeded configurations of form passes answer to rounding."""
    workload = KERNEL.workload({"N": N, "direction": direction}, 2)
    chosen = [KERNEL.default(workload), *(plan.configuration for plan in plans(N, "passes", 2))]
    for configuration in chosen:
        plan = KERNEL.plan(workload, configuration)
        x = numbers(2, N)
        check(x, host_build.run_plan_on_host(plan, {"x": x})["y"], direction == "inverse", plan.label())


@needs_compiler
@pytest.mark.parametrize(("form", "N"), [("tma", 131072), ("ring", 65536), ("ring-tma", 65536)])
def test_the_kernel_file_launches_other_forms(form: str, N: int) -> None:
    """Rooms, slots and counters that the kernel file makes are those that the code uses."""
    for plan in plans(N, form, 2, batch=2):
        x = numbers(2, N)
        check(x, host_build.run_plan_on_host(plan, {"x": x})["y"], False, plan.label())


def plain(value: Any) -> Any:
    """A value of a plan as numbers, texts and lists; fields that plans have since, if they are set."""
    if is_dataclass(value) and not isinstance(value, type):
        held = [(field, getattr(value, field.name)) for field in fields(value)]
        return [plain(item) for field, item in held if field.name not in NEW_FIELDS or item != field.default]
    return [plain(item) for item in value] if isinstance(value, tuple) else value


def launched(plan: Plan) -> Any:
    """What a plan launches, and on what; the sources themselves apart."""
    stages = [
        (
            *(stage.name, stage.entry, stage.options, stage.grid, stage.block, stage.shared_bytes),
            *(stage.arguments, stage.declared, stage.min_architecture, stage.resident, stage.cluster),
        )
        for stage in plan.stages
    ]
    return plain((tuple(stages), plan.buffers, plan.problem, plan.work))


def digest(lines: Iterable[str]) -> str:
    return hashlib.sha256("\n".join(sorted(lines)).encode()).hexdigest()


def each_workload() -> list[Any]:
    """All workloads; those between the smallest and the largest are of the pairwise tier."""
    found = KERNEL.workloads()
    ends = {found[0], found[-1]}
    return [
        pytest.param(one, marks=() if one in ends else pytest.mark.pairwise, id=str(one)) for one in found
    ]


@pytest.mark.parametrize("workload", each_workload())
def test_candidates_and_launches_are_what_they_were(workload: Workload) -> None:
    """Tables for each form change no candidate, nothing of what one launches, and leave no dead axis."""
    values = {c: json.dumps(dict(c), sort_keys=True) for c in KERNEL.space(workload)}
    launches = (text + json.dumps(launched(KERNEL.plan(workload, c))) for c, text in values.items())
    found = {"configurations": len(values), "values": digest(values.values()), "launches": digest(launches)}
    assert found == BEFORE[str(workload)]


def test_old_configurations_are_understood() -> None:
    """A configuration of before, with values of other forms' tunables, is the one without them."""
    workload = KERNEL.workload({"N": 65536})
    dead: dict[str, Any] = {
        "P2": 16,
        "L2": 256,
        "r2": 16,
        "passes": 2,
        "split": False,
        "fetch": "once",
        "promotion": 128,
    }
    dead |= {"bounded": True, "ring": 0, "lag": 0, "order": "falling", "load": "plain"}
    ours: dict[str, Any] = {"form": "cluster", "N1": 256, "P1": 16, "L1": 256, "r1": 16, "B": 16}
    ours |= {"order": "last", "scratch": 4, "store": 8, "sync": "async"}
    understood = KERNEL.configuration(workload, dead | ours)
    assert dict(understood) == ours
    assert understood in KERNEL.space(workload)


@needs_compiler
@pytest.mark.pairwise
@pytest.mark.parametrize("N", SIZES)
def test_every_configuration_keeps_its_kernels_rules(N: int) -> None:
    """No configuration of the space breaks a static assertion, such as that a tile keeps to its room."""
    workload = KERNEL.workload({"N": N})
    entries: dict[Source, dict[str, None]] = {}
    for configuration in KERNEL.space(workload):
        for stage in KERNEL.plan(workload, configuration).stages:
            entries.setdefault(stage.source, {})[stage.entry] = None
    for source, names in entries.items():
        check_syntax(source, list(names))


def test_forms_make_only_the_scratch_they_use() -> None:
    """A form in passes has no counters to clear, and one on chip has no array between passes."""
    made = {form: {b.name for b in plans(16384, form, 1)[0].buffers} for form in ("passes", "cluster")}
    made["ring"] = {b.name for b in plans(65536, "ring", 1)[0].buffers}
    assert made["passes"] == {"x", "y", "between"}
    assert made["cluster"] == {"x", "y"}
    assert made["ring"] == {"x", "y", "between", "counters"}


@pytest.mark.parametrize("architecture", ["sm_53", "sm_87", "sm_90"])
@pytest.mark.parametrize("N", [8192, 524288, 8388608])
def test_compiled_kernels_are_lean(architecture: str, cubins: Path, N: int) -> None:
    """The default and a sample of every form that the device runs compile without spills, as declared."""
    number = int(architecture.removeprefix("sm_"))
    workload = KERNEL.workload({"N": N})
    chosen = [KERNEL.plan(workload, KERNEL.default(workload))]
    if number > 80:  # older devices have half the registers in a block
        forms: set[Any] = {c["form"] for c in KERNEL.space(workload)}
        chosen += [plan for form in sorted(forms) for plan in plans(N, form, 2)]
    stages = [s for plan in chosen for s in plan.stages if s.min_architecture <= number]
    results = compiled_stages(stages, architecture, cubins)
    for stage, result in zip(stages, results, strict=True):
        made, declared = result.resources, stage.declared
        assert declared is not None
        assert (made.spill_bytes, made.local_bytes) == (0, 0), stage.entry
        assert made.static_shared_bytes <= 128, stage.entry
        assert made.registers_per_thread <= declared.registers_per_thread * 1.35, stage.entry
