"""Rodinia's kernels as plans: launches and arrays as its programs make them, on the inputs of our kernels.

Left out of its programs: allocation, copies to and from the host, and what the host computes. Block sizes and
the pyramid height are those that its sources offer without a change.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rodinia_judges import (
    MODULUS,
    POINT,
    Judge,
    filter_judge,
    gain_judge,
    law_judge,
    naive_judge,
    tracked,
)
from rodinia_sources import FILES

from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Buffer, Configuration, Plan, Scalar, Source, Stage, StageArgument

Array = NDArray[Any]
Inputs = Mapping[str, Array]


@dataclass(frozen=True)
class Form:
    """One way to run some kernels.

    Attributes:
        name: whose kernels, with their settings.
        plan: launches and arrays.
        inputs: what arrays of role ``in`` and ``inout`` hold before a run; the latter are restored, untimed.
        judge: tells how far the arrays are from right after a run.
        cleared: arrays that are set to zero before every launch; timed.
        timed: names of the stages that are timed; all where empty.
    """

    name: str
    plan: Plan
    inputs: Inputs
    judge: Judge
    cleared: tuple[str, ...] = ()
    timed: tuple[str, ...] = ()


def lud(source: Source, kernel: KernelFile, ours: Plan, inputs: Inputs) -> Iterator[Form]:
    """Factorisation by blocks of BLOCK_SIZE; N is a multiple of it."""
    del kernel
    n = _sizes(ours)["N"]
    for size in (16, 32, 8):
        if n % size:
            continue
        stages: list[Stage] = []
        launch = _Launches("lud", source, (f"-DRD_WG_SIZE={size}",))
        for offset in range(0, n, size):
            arguments = ("A", _int(n), _int(offset))
            stages.append(launch("lud_diagonal", (1,), (size,), arguments))
            rest = (n - offset) // size - 1
            if rest:
                stages.append(launch("lud_perimeter", (rest,), (2 * size,), arguments))
                stages.append(launch("lud_internal", (rest, rest), (size, size), arguments))
        buffers = (Buffer("A", "float32", (n, n), "inout"),)
        judge = law_judge(ours, inputs, lambda arrays: {"A": arrays["A"]})
        yield _form(f"lud, BLOCK_SIZE {size}", ours, stages, buffers, inputs, judge)


HEIGHTS = {16: (2, 1, 3, 4, 5), 32: (2, 1, 3, 4, 5, 6, 8), 8: (1, 2)}


def hotspot(source: Source, kernel: KernelFile, ours: Plan, inputs: Inputs) -> Iterator[Form]:
    """Steps of the heat equation, with the constants of our kernel; a pyramid is some steps of a launch."""
    del kernel
    sizes = _sizes(ours)
    rows, columns, steps = sizes["ROWS"], sizes["COLUMNS"], sizes["STEPS"]
    width, height = 0.016 / columns, 0.016 / rows
    capacity = 0.5 * 1.75e6 * 0.0005 * width * height
    rx, ry = width / (2.0 * 100 * 0.0005 * height), height / (2.0 * 100 * 0.0005 * width)
    rz = 0.0005 / (100 * width * height)
    step = 0.5 * capacity / (2 / rx + 2 / ry + 1 / rz)
    constants = tuple(Scalar("float32", value) for value in (capacity, rx, ry, rz, step, 0.001))
    shape = (rows, columns)
    buffers = (
        Buffer("temperatures 0", "float32", shape, "inout"),
        Buffer("temperatures 1", "float32", shape, "out"),
        Buffer("power", "float32", shape, "in"),
    )
    given = {"temperatures 0": inputs["before"], "power": inputs["power"]}
    for size, heights in HEIGHTS.items():
        for high in (high for high in heights if high <= steps):
            launch = _Launches("hotspot", source, (f"-DRD_WG_SIZE={size}",))
            inner = size - 2 * high
            grid = (-(-columns // inner), -(-rows // inner))
            stages = []
            for place, first in enumerate(range(0, steps, high)):
                arrays = ("power", f"temperatures {place % 2}", f"temperatures {1 - place % 2}")
                counts = tuple(map(_int, (columns, rows, high, high)))
                arguments = (_int(min(high, steps - first)), *arrays, *counts, *constants)
                stages.append(launch("calculate_temp", grid, (size, size), arguments))
            last = f"temperatures {len(stages) % 2}"
            judge = law_judge(ours, inputs, lambda arrays, last=last: {"after": arrays[last]})
            name = f"hotspot, BLOCK_SIZE {size}, pyramid height {high}"
            yield _form(name, ours, stages, buffers, given, judge)


def streamcluster(source: Source, kernel: KernelFile, ours: Plan, inputs: Inputs) -> Iterator[Form]:
    """Costs of candidates one after another; the sums, which the host makes in its program, are left out."""
    sizes = _sizes(ours)
    n, dim, centres, calls = (sizes[name] for name in ("N", "DIM", "K", "CALLS"))
    stride = centres + 1
    points = np.zeros(n, POINT)
    medians = np.arange(centres) * (n // centres)  # the points that are centres
    points["weight"], points["cost"] = inputs["weight"], inputs["cost"]
    points["assign"] = medians[inputs["centre"]]
    table = np.zeros(n, np.int32)
    table[medians] = np.arange(centres)
    given = {
        "points": points.view(np.uint8),
        "coordinates": inputs["points"].reshape(-1),
        "table": table,
    }
    buffers = (
        Buffer("points", "uint8", (POINT.itemsize * n,), "in"),
        Buffer("coordinates", "float32", (dim * n,), "in"),
        Buffer("table", "int32", (n,), "in"),
        Buffer("work", "float32", ((n + 1) * stride,), "out"),
        Buffer("switched", "uint8", (n,), "out"),
    )
    judge = gain_judge(kernel, ours, inputs)
    for threads in (512, 64, 128, 256, 1024):
        launch = _Launches("streamcluster", source)
        stages = [
            launch(
                "kernel_compute_cost",
                (-(-n // threads),),
                (threads,),
                (
                    *(_int(n), _int(dim), Scalar("int64", call * 7919 % n), "points", _int(centres)),
                    *(_int(stride), "coordinates", "work", "table", "switched"),
                ),
            )
            for call in range(calls)
        ]
        form = _form(f"streamcluster, {_threads(threads, 512)}", ours, stages, buffers, given, judge)
        yield replace(form, cleared=("work", "switched"))


def filter_float(source: Source, kernel: KernelFile, ours: Plan, inputs: Inputs) -> Iterator[Form]:
    """A frame of the filter with all of its steps on the device; in double, whatever its name says."""
    del kernel
    sizes = _sizes(ours)
    n, high, wide, fixed = sizes["N"], sizes["H"], sizes["W"], 512  # a constant of its source, not a macro
    offsets = np.array([(dy, dx) for dx in range(-4, 5) for dy in range(-4, 5) if dx * dx + dy * dy < 25])
    given = {
        "frame": np.ascontiguousarray(inputs["frame"].T).reshape(-1),  # its first axis is x
        "xj": inputs["x"],
        "yj": inputs["y"],
        "seed": np.random.default_rng(1).integers(1, MODULUS, n).astype(np.int32),
        "offsets": offsets.astype(np.int32).reshape(-1),
        "u": np.zeros(n),
    }
    double = ("arrayX", "arrayY", "CDF", "weights")
    buffers = (
        *(Buffer(name, "float64", (n,), "out") for name in double),
        *(Buffer(name, "float64", (n,), "inout") for name in ("xj", "yj", "u")),
        *(Buffer(name, "float64", (n,), "scratch") for name in ("likelihood", "sums")),
        Buffer("pixels", "int32", (n * len(offsets),), "scratch"),
        Buffer("seed", "int32", (n,), "inout"),
        Buffer("offsets", "int32", (2 * len(offsets),), "in"),
        Buffer("frame", "uint8", (wide * high,), "in"),
    )
    whole, one, none = _int(n), _int(1), _int(0)
    likelihood = (
        *("arrayX", "arrayY", "xj", "yj", "CDF", "pixels", "offsets", "likelihood", "frame", "u", "weights"),
        *(whole, _int(len(offsets)), _int(wide * high), none, _int(high), one, "seed", "sums"),
    )
    normalise = ("weights", whole, "sums", "CDF", "u", "seed")
    find = ("arrayX", "arrayY", "CDF", "u", "xj", "yj", "weights", whole)
    for threads in (512, 64, 128, 256):
        launch, blocks = _Launches("particlefilter-float", source), -(-n // fixed)
        stages = [
            launch("likelihood_kernel", (blocks,), (fixed,), likelihood),
            launch("sum_kernel", (blocks,), (fixed,), ("sums", whole)),
            launch("normalize_weights_kernel", (blocks,), (fixed,), normalise),
            launch("find_index_kernel", (-(-n // threads),), (threads,), find),
        ]
        name = f"particlefilter float, search by {_threads(threads, 512)}"
        yield _form(name, ours, stages, buffers, given, filter_judge(ours, given))


def filter_naive(source: Source, kernel: KernelFile, ours: Plan, inputs: Inputs) -> Iterator[Form]:
    """The search of a frame, the only part of this variant on the device; in double."""
    n = _sizes(ours)["N"]
    given = tracked(kernel, inputs)
    buffers = (
        *(Buffer(name, "float64", (n,), "in") for name in ("arrayX", "arrayY", "CDF", "u")),
        *(Buffer(name, "float64", (n,), "out") for name in ("xj", "yj")),
    )
    for threads in (128, 64, 256, 512):
        launch = _Launches("particlefilter-naive", source)
        arguments = ("arrayX", "arrayY", "CDF", "u", "xj", "yj", _int(n))
        stages = [launch("kernel", (-(-n // threads),), (threads,), arguments)]
        name = f"particlefilter naive, {_threads(threads, 128)}"
        yield _form(name, ours, stages, buffers, given, naive_judge(given))


class _Launches:
    """Makes stages of one file, compiled with one set of options."""

    def __init__(self, name: str, source: Source, options: tuple[str, ...] = ()) -> None:
        self._source = source
        self._options = (*FILES[name].flags, *options)

    def __call__(
        self, entry: str, grid: Sequence[int], block: Sequence[int], arguments: Iterable[StageArgument]
    ) -> Stage:
        gx, gy, gz = (*grid, 1, 1)[:3]
        bx, by, bz = (*block, 1, 1)[:3]
        extents = (gx, gy, gz), (bx, by, bz)
        return Stage(entry, self._source, entry, self._options, *extents, 0, tuple(arguments))


def _form(  # noqa: PLR0917 - what a form is made of
    name: str,
    ours: Plan,
    stages: Sequence[Stage],
    buffers: tuple[Buffer, ...],
    inputs: Inputs,
    judge: Judge,
) -> Form:
    plan = replace(ours, configuration=Configuration({}), stages=tuple(stages), buffers=buffers)
    return Form(name, replace(plan, baseline=None, reference=None), inputs, judge)


def _sizes(plan: Plan) -> dict[str, int]:
    return {name: int(value) for name, value in plan.workload.sizes}


def _int(value: int) -> Scalar:
    return Scalar("int32", value)


def _threads(count: int, documented: int) -> str:
    return f"{count} threads{' (its own)' if count == documented else ''}"
