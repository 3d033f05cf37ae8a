"""Numerics of the long transforms in passes and through a ring, their space and their code, without a GPU."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest

from tuner.compiler import Compiled, Compiler
from tuner.config import load_kernel_file
from tuner.errors import CompilerUnavailableError
from tuner.model import Configuration, Plan, Source
from tuner.problems import poison

Array = npt.NDArray[Any]

FOLDER = Path(__file__).parents[1] / "kernels" / "fft-large"
KERNEL = load_kernel_file(FOLDER / "kernel.toml")
SIZES = [int(N) for N in KERNEL.sizes["N"]]
TENSOR_MAP = np.void(bytes(128))  # the host copies boxes without it
SEED = 7

needs_compiler = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


@dataclass(frozen=True)
class Pass:
    """Points of a transform, transforms of a tile, points of a thread, largest radix."""

    M: int
    C: int
    P: int
    r: int

    @property
    def threads(self) -> int:
        return self.M * self.C // self.P

    def room(self, bytes_per_point: float) -> int:
        return int(self.M * self.C * bytes_per_point)

    def tiles(self, of: int) -> int:
        return of // (self.M * self.C)

    def __str__(self) -> str:
        return f"{self.C}, {self.P}, {self.r}"


@dataclass(frozen=True)
class Shape:
    """A transform too short for the kernel file, whose passes have all their parts nevertheless."""

    first: Pass
    last: Pass
    passes: int = 2

    @property
    def points(self) -> int:
        return int(self.first.M ** (self.passes - 1) * self.last.M)


SHAPES = [
    Shape(Pass(16, 8, 8, 8), Pass(16, 8, 8, 8)),
    Shape(Pass(64, 4, 8, 8), Pass(32, 16, 8, 8)),
    Shape(Pass(64, 16, 16, 16), Pass(64, 4, 8, 8)),
    Shape(Pass(128, 8, 32, 32), Pass(32, 32, 16, 16)),
    Shape(Pass(256, 8, 16, 8), Pass(64, 16, 16, 16)),
    Shape(Pass(16, 8, 8, 8), Pass(16, 16, 8, 8), passes=3),
    Shape(Pass(32, 4, 8, 8), Pass(16, 8, 8, 8), passes=3),
]
RINGS = [
    Shape(Pass(64, 8, 8, 8), Pass(64, 8, 8, 8)),
    Shape(Pass(64, 8, 8, 8), Pass(64, 16, 16, 8)),
    Shape(Pass(32, 16, 8, 8), Pass(64, 8, 8, 8)),
]


def source(name: str) -> Source:
    return host_build.read_source(FOLDER / name, [FOLDER.parent / "common"])


def numbers(batch: int, N: int) -> Array:
    x = np.random.default_rng(N).standard_normal((batch, N, 2), np.float32).view(np.complex64)[..., 0]
    x.flags.writeable = False  # a kernel that writes its input fails
    return x


def poisoned(*shape: int) -> Array:
    y = np.empty(shape, np.complex64)
    poison(y)
    return y


def check(x: Array, y: Array, inverse: bool, what: object = "") -> None:
    """The largest relative L2 error of a row against NumPy's transform in complex128 is within the target."""
    reference = (np.fft.ifft if inverse else np.fft.fft)(x.astype(np.complex128))
    errors = np.linalg.norm(y - reference, axis=1) / np.linalg.norm(reference, axis=1)
    assert errors.max() <= 1e-7 * np.log2(x.shape[1]), what


def text(flag: bool) -> str:
    return str(flag).lower()


def in_passes(shape: Shape, x: Array, split: bool, inverse: bool, **how: Any) -> Array:
    first, last, N = shape.first, shape.last, shape.points
    between, y = poisoned(*x.shape), poisoned(*x.shape)
    code, half = source("passes.cu"), 2 if split else 1

    def columns(W: int, share: int, turn: int, swap: bool, of: Array) -> None:
        entry = f"columns<{first.M}, {W}, {first}, {share}, {turn}, {text(split)}, {text(swap)}, 1>"
        args = (first.tiles(x.size), first.threads, first.room(11 / half), [of, between])
        host_build.run(code, entry, *args, **how)

    columns(N // first.M, 1, last.C, inverse, x)
    if shape.passes == 3:
        columns(last.M * last.C, last.C, 1, False, between.copy())
    rows(shape, between, y, split, inverse, **how)
    return y


def rows(shape: Shape, between: Array, y: Array, split: bool, inverse: bool, **how: Any) -> None:
    between.flags.writeable = False
    last, groups = shape.last, shape.first.M if shape.passes == 3 else 1
    entry = f"rows<{shape.points}, {last.M}, {groups}, {last}, {text(split)}, {text(inverse)}, 1>"
    args = (last.tiles(y.size), last.threads, last.room(4.5 if split else 9), [between, y])
    host_build.run(source("passes.cu"), entry, *args, **how)


def by_copies(shape: Shape, x: Array, early: bool, inverse: bool, blocks: int, **how: Any) -> Array:
    first, last = shape.first, shape.last
    between, y = poisoned(*x.shape), poisoned(*x.shape)
    entry = f"columns_tma<{first.M}, {last.M}, {first}, {last.C}, {text(early)}, {text(inverse)}, 1>"
    room = first.room(13.5 if early else 11)
    args: list[Any] = [TENSOR_MAP, x, between, first.tiles(x.size)]
    host_build.run(source("tma.cu"), entry, blocks, first.threads, room, args, **how)
    rows(shape, between, y, False, inverse, **how)
    return y


def through_ring(
    shape: Shape, x: Array, form: str, ring_of: tuple[int, int], inverse: bool = False, **how: Any
) -> Array:
    """On the host the first block does all: what tickets wait for has been done, or the answer is wrong."""
    slots, lag = ring_of
    first, last, batch = shape.first, shape.last, len(x)
    ring, y, counters = poisoned(slots, shape.points), poisoned(*x.shape), np.zeros(1 + 2 * batch, np.uint32)
    name, mode = ("ring", "") if form == "ring" else ("ring_tma", f"{text(form == 'early')}, ")
    entry = f"{name}<{shape.points}, {first.M}, {first}, {last}, {mode}{text(inverse)}, 1>"
    args: list[Any] = [*[TENSOR_MAP] * (form != "ring"), x, ring, y, counters, batch, slots, lag]
    points = max(first.M * first.C, last.M * last.C)
    room = points * 27 // 2 if form == "early" else points * 11
    host_build.run(
        source(f"{name}.cu"), entry, 2, first.threads, room, args, order="shuffle", seed=SEED, **how
    )
    return y


@needs_compiler
@pytest.mark.parametrize("split", [False, True])
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_passes_transform_every_point(shape: Shape, split: bool) -> None:
    """Two and three passes answer to rounding, in any order of threads, forward and inverse."""
    x = numbers(3, shape.points)
    for order in host_build.ORDERS:
        check(x, in_passes(shape, x, split, False, order=order), False, order)
    check(x, in_passes(shape, x, split, True), True)


@needs_compiler
@pytest.mark.parametrize("early", [False, True])
@pytest.mark.parametrize("shape", [s for s in SHAPES if s.passes == 2], ids=str)
def test_blocks_walk_over_tiles_that_were_copied_for_them(shape: Shape, early: bool) -> None:
    """Fewer blocks than tiles, and as many, answer to rounding, forward and inverse."""
    x = numbers(3, shape.points)
    for order in host_build.ORDERS:
        check(x, by_copies(shape, x, early, False, 2, order=order), False, order)
    check(x, by_copies(shape, x, early, True, shape.first.tiles(x.size)), True)


@needs_compiler
@pytest.mark.parametrize("form", ["ring", "late", "early"])
@pytest.mark.parametrize("shape", RINGS, ids=str)
def test_a_ring_holds_problems_between_their_passes(shape: Shape, form: str) -> None:
    """Slots are used again and again; batches shorter than lag and ring, and of one, are no exception."""
    for batch, slots, lag in [(7, 3, 2), (5, 2, 1), (2, 6, 4), (1, 2, 1)]:
        x = numbers(batch, shape.points)
        check(x, through_ring(shape, x, form, (slots, lag)), False, (batch, slots, lag))
    check(x, through_ring(shape, x, form, (2, 1), inverse=True), True)


@needs_compiler
@pytest.mark.parametrize("form", ["passes", "split", "late", "early", "ring", "ring-late", "ring-early"])
def test_threads_keep_to_their_arrays_and_meet_in_between(form: str) -> None:
    """No access is out of bounds, and none is unordered with another to the same place."""
    shape, flags = RINGS[0] if form.startswith("ring") else SHAPES[1], host_build.CHECKED
    x = numbers(3, shape.points)
    if form.startswith("ring"):
        y = through_ring(shape, x, form.removeprefix("ring-"), (2, 1), flags=flags)
    elif form in ("late", "early"):
        y = by_copies(shape, x, form == "early", False, 2, order="shuffle", flags=flags)
    else:
        y = in_passes(shape, x, form == "split", False, order="shuffle", flags=flags)
    check(x, y, False)


JOBS = """
#include "tickets.cuh"
__global__ void jobs(int* list, int tickets, int batch, int lag) {
    for (int i = 0; i < tickets; ++i) {
        const Job job = job_of<FIRST, SECOND>(i, batch, lag);
        list[3 * i] = job.problem, list[3 * i + 1] = job.tile, list[3 * i + 2] = job.second;
    }
}
"""


@needs_compiler
@pytest.mark.parametrize(("first", "second"), [(4, 4), (2, 8), (8, 1)])
def test_tickets_wait_for_smaller_ones_only(first: int, second: int) -> None:
    """Each job has one ticket, and what it waits for, in a ring of lag + 1 slots, smaller ones."""
    code = Source("jobs.cu", JOBS, source("ring.cu").headers)
    options = [f"-DFIRST={first}", f"-DSECOND={second}"]
    for batch, lag in [(9, 3), (5, 1), (4, 4), (1, 1)]:
        tickets = batch * (first + second)
        jobs = np.full((tickets + 1, 3), -1, np.int32)
        host_build.run(code, "jobs", 1, 1, 0, [jobs, tickets + 1, batch, lag], options=options)
        assert jobs[-1, 0] >= batch, "who comes too late finds no problem"
        ticket = {tuple(job): i for i, job in enumerate(jobs[:-1].tolist())}
        assert len(ticket) == tickets
        for (problem, tile, is_second), i in ticket.items():
            assert 0 <= problem < batch
            assert 0 <= tile < (second if is_second else first)
            if is_second:
                needed = [(problem, k, 0) for k in range(first)]
            elif problem > lag:
                needed = [(problem - lag - 1, k, 1) for k in range(second)]
            else:
                needed = []
            assert all(ticket[job] < i for job in needed)


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


@pytest.mark.parametrize("N", SIZES)
def test_space_is_one_to_search(N: int) -> None:
    """At most 3000 configurations at any size, at least 500 at the largest, the default among them."""
    workload = KERNEL.workload({"N": N})
    space = KERNEL.space(workload)
    assert 100 <= len(space) <= 3000
    assert max(SIZES) > N or len(space) >= 500
    assert KERNEL.default(workload) in space
    stages = KERNEL.plan(workload, KERNEL.default(workload)).stages
    assert all(stage.shared_bytes <= 48 * 1024 for stage in stages), "any GPU runs the default"


def test_forms_make_only_the_scratch_they_use() -> None:
    """A form in passes has no counters to clear, and one on chip has no array between passes."""
    made = {form: {b.name for b in plans(16384, form, 1)[0].buffers} for form in ("passes", "cluster")}
    made["ring"] = {b.name for b in plans(65536, "ring", 1)[0].buffers}
    assert made["passes"] == {"x", "y", "between"}
    assert made["cluster"] == {"x", "y"}
    assert made["ring"] == {"x", "y", "between", "counters"}


@pytest.fixture(params=["sm_53", "sm_87", "sm_90"])
def compiler(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Compiler]:
    try:
        made = Compiler(request.param, tmp_path, jobs=2)
    except CompilerUnavailableError as e:
        pytest.skip(str(e))
    with made:
        yield made


@pytest.mark.parametrize("N", [8192, 524288, 8388608])
def test_compiled_kernels_are_lean(compiler: Compiler, N: int, request: pytest.FixtureRequest) -> None:
    """The default and a sample of every form that the device runs compile without spills, as declared."""
    architecture = int(request.node.callspec.params["compiler"].removeprefix("sm_"))
    workload = KERNEL.workload({"N": N})
    chosen = [KERNEL.plan(workload, KERNEL.default(workload))]
    if architecture > 80:  # older devices have half the registers in a block
        forms: set[Any] = {c["form"] for c in KERNEL.space(workload)}
        chosen += [plan for form in sorted(forms) for plan in plans(N, form, 2)]
    stages = [s for plan in chosen for s in plan.stages if s.min_architecture <= architecture]
    for stage, result in zip(stages, compiler.compile(stages), strict=True):
        assert isinstance(result, Compiled), result
        made, declared = result.resources, stage.declared
        assert declared is not None
        assert (made.spill_bytes, made.local_bytes) == (0, 0), stage.entry
        assert made.static_shared_bytes <= 128, stage.entry
        assert made.registers_per_thread <= declared.registers_per_thread * 1.35, stage.entry


def test_configurations_are_named_by_their_passes() -> None:
    """A configuration that gives every tunable makes a plan with its launches in order."""
    workload = KERNEL.workload({"N": 2**22})
    values = dict(KERNEL.default(workload).items())
    names = [stage.name for stage in KERNEL.plan(workload, Configuration(values)).stages]
    assert names == ["columns", "columns of the rows", "rows"]
