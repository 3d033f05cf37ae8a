"""Every kernel of the catalogue compiles for devices old and new, and nothing spills unseen."""

import functools
import math
import re
from collections.abc import Iterable, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from compiled_stages import compiled_stages
from kernel_plans import DEFAULT, STATED, Values, large_batch, sizes_of
from kernel_plans import plan_of as plan_with
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
from long_scans import DTYPES as SUMMED
from long_scans import FORMS, OPERATORS
from long_scans import WAYS as SIDES

from tuner.compiler.compiler import CompiledStage, Compiler
from tuner.compiler.contract import misfit
from tuner.kernel_files.formulas import derived_for
from tuner.kernel_files.stage_recipe import StageRecipe
from tuner.model.plan import Plan, Source, Stage, TunableValue

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


class Lean(NamedTuple):
    """Configurations that spill nothing, at each combination of sizes.

    Attributes:
        kernels: names, with blanks.
        sizes: values of each size.
        architectures: for which they are compiled.
        values: of tunables; also ``DEFAULT``, ``STATED``, the latter of a large batch.
        registers: of a thread, at most.
        declared: registers that the kernel file declares, by those compiled.
    """

    kernels: str
    sizes: Mapping[str, Sequence[int | str]]
    architectures: tuple[int, ...]
    values: Values = DEFAULT
    registers: int = 255
    declared: tuple[float, float] = (0, math.inf)

    def plans(self, kernel: str) -> list[Plan]:
        """Of one of the kernels."""
        batched = [(one, large_batch(one) if self.values is STATED else 1) for one in sizes_of(self.sizes)]
        return [plan_with(kernel, sizes, batch, self.values) for sizes, batch in batched]


def fast(kernels: str, N: int, registers: int, **values: TunableValue) -> Lean:
    """What was fastest on an H200, or nearly so, and the registers with which enough of it is in flight."""
    if kernels == "fft":
        points = int(values["P"]) * int(values["L"])
        rest: Values = {"order": "first", "S": points, "shuffle": False, "padding": "stage", "blocks": 0}
        return Lean(kernels, {"N": [N]}, (53, 87, 90), {**rest, **values}, registers)
    return Lean(
        kernels,
        {"N": [N]},
        (53, 90),
        {"shuffle": True, "blocks": 1, **values},
        registers,
        (1 / 1.2, math.inf),
    )


REAL, COMPLEX, WAYS = ("float32", "float64"), ("complex64", "complex128"), ("forward", "inverse")
SOLVED, WIDE = ("float32", "float64", "complex64"), ("float64", "complex64")
METHODS = "tridiag-cr tridiag-pcr tridiag-lf tridiag-wm"
LEAN = (
    fast("fft", 64, 36, P=4, L=64, r=4),
    fast("fft", 64, 40, P=8, L=32, r=8),
    fast("fft", 128, 36, P=4, L=128, r=4),
    fast("fft", 128, 40, P=8, L=32, r=8),
    fast("fft", 256, 40, P=8, L=64, r=8, blocks=24),
    fast("fft", 512, 40, P=8, L=64, r=8, blocks=24),
    fast("fft", 1024, 40, P=8, L=128, r=8, S=512, blocks=12),
    fast("fft", 1024, 64, P=16, L=64, r=16, blocks=16),
    fast("fft", 2048, 40, P=8, L=256, r=8, blocks=6),
    fast("fft", 2048, 128, P=32, L=128, r=32, blocks=4),
    fast("fft", 4096, 64, P=16, L=256, r=16, blocks=4),
    fast("fft", 4096, 128, P=32, L=128, r=32, order="falling", blocks=4),
    fast("fft", 8192, 64, P=16, L=512, r=16, order="falling", blocks=2),
    fast("fft", 8192, 128, P=32, L=256, r=32, order="rising", blocks=2),
    Lean("fft-any", {"N": (30, 210, 527, 1000, 4000, 8192)}, (53, 120), registers=168),
    Lean("fft-any", {"N": (1009, 4093)}, (90, 120), registers=168),
    Lean("fft-any", {"N": (243, 1000, 2048), "dtype": COMPLEX[1:]}, (53, 120), registers=168),
    Lean("fft-any", {"N": (222, 6579, 6848, 8191)}, (90,), registers=112),  # large primes are convolved
    Lean("fft-any", {"N": (2034, 7272), "dtype": COMPLEX[1:]}, (90,), registers=168),
    Lean("fft-real", {"N": [2000], "dtype": REAL}, (53, 120), registers=168),
    Lean("fft-long", {"N": (10000, 65537), "dtype": COMPLEX}, (53, 120)),
    Lean("fft-long", {"N": (12136, 37888), "dtype": COMPLEX}, (90, 120)),
    Lean("fft-long", {"N": [10**6], "dtype": COMPLEX[1:]}, (120,), STATED),
    Lean("fft-long", {"N": [2**24 - 3]}, (120,), STATED),
    Lean("fft-long", {"N": [9216], "dtype": COMPLEX[1:]}, (90,), STATED),
    Lean("fft-long", {"N": (10000, 15625, 20000)}, (90,), STATED),
    Lean("fft-real-long", {"N": (16384, 65536), "direction": WAYS, "dtype": REAL}, (53, 120)),
    Lean(
        "fft-real-long", {"N": (10000, 44100, 10**6, 2**24), "direction": WAYS, "dtype": REAL}, (90,), STATED
    ),
    Lean("fft-columns", {"N": (1024, 8192), "W": [1024]}, (53, 90)),
    Lean("fft-convolution", {"N": [4096]}, (53, 90)),
    Lean("fft-2d", {"M": [4096], "N": [4096]}, (53, 90)),
    Lean("fft-2d", {"M": [333], "N": [777], "dtype": COMPLEX}, (90,)),
    *(Lean("fft-2d", {"M": [N], "N": [N]}, (90,), STATED) for N in (512, 4096, 8192)),
    fast("scan-lf scan-ks", 64, 32, P=4, L=128, store="direct"),
    fast("scan-lf scan-ks", 512, 32, P=8, L=128, store="direct"),
    fast("scan-lf scan-ks", 512, 64, P=32, L=32, store="bulk"),
    fast("scan-lf scan-ks", 1024, 40, P=16, L=64, store="direct"),
    fast("scan-lf scan-ks", 2048, 32, P=8, L=512, store="direct"),
    fast("scan-lf scan-ks", 2048, 40, P=8, L=256, store="bulk", cap=1536),
    fast("scan-lf scan-ks", 2048, 128, P=64, L=64, store="direct"),
    fast("scan-lf scan-ks", 8192, 32, P=8, L=1024, store="bulk"),
    fast("scan-lf scan-ks", 8192, 128, P=64, L=128, store="bulk"),
    *(
        Lean(
            "scan-long",
            {"N": [2**24], "dtype": SUMMED[i::2], "operator": OPERATORS, "form": [form]},
            (53, 90, 120),
            registers=224,
        )
        for i, form in enumerate(FORMS)
    ),
    *(
        Lean(
            kernel,
            {
                "N": [2**24],
                **ends,
                "dtype": [dtype],
                "operator": [operator],
                "form": [FORMS[k % 2]],
                "direction": [SIDES[k // 4]],
            },
            (53, 90) if k in old else (90,),
            registers=128,
        )
        for kernel, ends, old in (
            ("scan-flags", {}, (0, 3, 6)),
            ("scan-offsets", {"ends": [1000]}, (1, 4, 7)),
        )
        for k, (dtype, operator) in enumerate(zip(SUMMED, (*OPERATORS, "sum"), strict=True))
    ),
    Lean(METHODS, {"N": (64, 1001, 2048), "dtype": WIDE}, (53,), declared=(0.6, 1.6)),
    Lean(METHODS, {"N": (64, 1001, 4096), "dtype": WIDE}, (90,), declared=(0.6, 1.6)),
    *(
        Lean(
            f"tridiag-{name}",
            {"N": (*some, longest), "dtype": SOLVED},
            (architecture,),
            values,
            declared=declared,
        )
        for name, some, limits, declared, stated in (
            ("periodic", (100, 1001), {53: 2048, 90: 4096}, (0.6, 1.6), ()),
            ("large", (5001,), {53: 2**20, 90: 2**20}, (0.6, 1.6), (90,)),
            ("periodic-large", (5001,), {53: 2**22, 90: 2**22}, (0.6, 1.6), (90,)),
        )
        for architecture, longest in limits.items()
        for values in (DEFAULT, STATED)
        if values is DEFAULT or architecture in stated
    ),
    *(
        Lean(
            "tridiag-periodic",
            {"N": (128, 1024, longest), "dtype": SOLVED},
            (architecture,),
            STATED,
            declared=(0.6, 1.6),
        )
        for architecture, longest in ((53, 2048), (90, 4096))
    ),
    *(
        Lean(
            f"tridiag-{name}",
            {"N": [N], "K": [K], "dtype": SOLVED},
            (architecture,),
            values,
            declared=declared,
        )
        for name, N, K, architecture, values, declared in (
            ("several", 64, 2, 53, DEFAULT, (0.5, 1.7)),
            ("several", 64, 2, 90, DEFAULT, (0.5, 1.7)),
            ("several", 1024, 4, 53, DEFAULT, (0.5, 1.7)),
            ("several", 2048, 4, 90, DEFAULT, (0.5, 1.7)),
            ("several-large", 5001, 2, 53, DEFAULT, (0.6, 1.8)),
            ("several-large", 5001, 2, 90, DEFAULT, (0.6, 1.8)),
            ("several-large", 5001, 2, 90, STATED, (0.6, 1.8)),
            ("several-large", 2**21, 4, 53, DEFAULT, (0.6, 1.8)),
            ("several-large", 2**22, 4, 90, DEFAULT, (0.6, 1.8)),
            ("several-large", 2**22, 4, 90, STATED, (0.6, 1.8)),
        )
    ),
)


@pytest.mark.parametrize(
    ("kernel", "architecture"),
    sorted({(kernel, one) for row in LEAN for kernel in row.kernels.split() for one in row.architectures}),
)
def test_what_is_fast_stays_lean(kernel: str, architecture: int, cubins: Path) -> None:
    """Nothing spills, and it takes no more registers and shared memory than it may and than is declared."""
    rows = [row for row in LEAN if kernel in row.kernels.split() and architecture in row.architectures]
    stages = [(row, stage) for row in rows for plan in row.plans(kernel) for stage in plan.stages]
    results = compiled_stages([stage for _, stage in stages], f"sm_{architecture}", cubins)
    check_no_spills([(stage, result) for (_, stage), result in zip(stages, results, strict=True)])
    for (row, stage), result in zip(stages, results, strict=True):
        made, declared = result.resources, stage.declared
        assert made.registers_per_thread <= row.registers, stage.entry
        if declared is None:
            assert kernel.startswith("fft-"), stage.entry
            continue
        assert made.static_shared_bytes <= declared.static_shared_bytes, stage.entry
        ratio = declared.registers_per_thread / made.registers_per_thread
        assert row.declared[0] <= ratio <= row.declared[1], stage.entry
        if kernel.startswith("tridiag"):
            assert made.static_shared_bytes == declared.static_shared_bytes, stage.entry


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
