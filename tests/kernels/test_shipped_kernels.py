"""The files of the shipped kernels: defaults, rules and plans at all their sizes.

Fewer are planned where no kernel differs from main's: then a fault is in the code that all of them share.
"""

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

import pytest
from kernel_plans import kernel_of, large_batch, sizes_of
from pairwise import pairwise

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.plan import Plan, Workload
from tuner.space.space import Space

LEAST_CONFIGURATIONS = {  # at the largest size; 60 elsewhere
    "fft-large": 500,
    # a problem of order 128 nearly fills a multiprocessor
    **dict.fromkeys(("gemm-batched", "potrf-batched", "trsm-batched"), 50),
    **dict.fromkeys(("geqrf-batched", "getrf-batched"), 10),
    "tridiag-periodic": 40,  # rows of any length of which threads have one more or less
    **dict.fromkeys(("tridiag-several", "tridiag-several-large"), 20),  # right sides share the registers
    "potrf": 12,  # outer blocks of a large matrix are wide, and its panels few
    **dict.fromkeys(("geqrf", "getrf"), 4),
    **dict.fromkeys(("fft-convolution", "geqrf-hybrid", "getrf-hybrid", "potrf-hybrid"), 30),
}
MOST_LAUNCHES = 300  # of a loop's configurations at one size: its steps are alike
MOST_PLANS = 12  # at one size, beside the default's; others are made at other sizes
FEWER = 4  # a part of these, and of sizes, where no kernel differs from main's


def plans(
    kernel: KernelFile,
    workload: Workload,
    space: Space,
    place: int,
    *,
    every: int,
    part: int,
    most_stages: int | None = None,
) -> Iterator[Plan]:
    """Of the default and one of ``every`` so many others, 1 for all; of a loop fewer where it is long.

    Args:
        kernel: of which.
        workload: at which sizes.
        space: of its configurations.
        place: at each place other ones are taken.
        every: see above.
        part: 1 for the others, and for one in so many of them.
        most_stages: no others where the default has more.
    """
    first = kernel.plan(workload, kernel.default(workload))
    yield first
    if most_stages is not None and len(first.stages) > most_stages:
        return
    if every > 1 or part > 1:
        every = max(every, len(space) * part // MOST_PLANS)
    if kernel.recipe.loops:
        every = max(every, min(len(space), len(space) * len(first.stages) * part // MOST_LAUNCHES))
    yield from (kernel.plan(workload, configuration) for configuration in space[place % every :: every])


Table = Mapping[str, Sequence[int | str]]


class Spaces(NamedTuple):
    """How much there is to search at each combination of sizes.

    Attributes:
        kernels: names, with blanks.
        sizes: values of each size.
        least: configurations.
        most: configurations.
        shared_bytes: that a block of the default has at most, which then runs on any device; None of any.
        varied: every tunable has several values at the last of the sizes.
        batches: each of them; the file's if None.
        large: in a large batch as well.
    """

    kernels: str
    sizes: Table
    least: int
    most: int
    shared_bytes: int | None = None
    varied: bool = False
    batches: tuple[int | None, ...] = (None,)
    large: bool = False


ANY_GPU = 48 * 1024  # bytes of shared memory that a block may have
REAL, COMPLEX, WAYS = ("float32", "float64"), ("complex64", "complex128"), ("forward", "inverse")
SOLVED, SCANNED = ("float32", "float64", "complex64"), ("float32", "float64", "int32")
SUMMED = (*SCANNED, "int64", "uint32", "float16", "bfloat16", "complex64")
# Of one and of several stages, with idle threads, by Bluestein's algorithm; odd, even and prime.
LENGTHS = (3, 4, 7, 46, 64, 97, 210, 961, 1000, 1024, 1519, 2187, 4093, 5000, 7203, 7595, 8001, 8191, 8192)
LONG = (128, 131, 155, 4199, 8193, 10007, 44100, 7**7, 66 * 13**4, 17**5)
LONGEST = (23**5, 3**15, 2**24 - 3, 2**24)
CROWDED = (955434, 1524237, 6409000)  # whose tiles have few columns
UNLISTED = (422500, 456300, 3**12)  # whose columns would have two stages by 26 or 27 points
SYSTEMS, LONG_SYSTEMS = (129, 257, 1000), (4097, 2**17, 2**22 - 1, 2**22)
ONE: Table = {}  # right side
SEVERAL: Table = {"K": (2, 4)}
BATCHED: Table = {"n": range(1, 129), "dtype": REAL}
SPACES = (
    Spaces("fft", {"N": [2**k for k in range(1, 6)]}, 1, 240, ANY_GPU),
    Spaces("fft", {"N": [2**k for k in range(6, 14)]}, 90, 240, ANY_GPU),
    Spaces("fft-any", {"N": LENGTHS, "dtype": COMPLEX}, 1, 2000, batches=(3,)),
    Spaces("fft-real", {"N": LENGTHS, "dtype": REAL}, 1, 2000, batches=(3,)),
    Spaces("fft-large", {"N": [2**k for k in range(13, 23)]}, 100, 3000, ANY_GPU),
    Spaces("fft-large", {"N": [2**23]}, 500, 3000, ANY_GPU),
    Spaces("fft-long", {"N": (*LONG, *LONGEST), "dtype": ["complex64"]}, 1, 6000, ANY_GPU, batches=(1,)),
    Spaces("fft-long", {"N": LONG, "dtype": ["complex128"]}, 1, 6000, ANY_GPU, batches=(1,)),
    Spaces("fft-long", {"N": LONGEST, "dtype": ["complex128"]}, 1, 6000, 74752, batches=(1,)),
    *(
        Spaces(
            "fft-real-long",
            {"N": lengths, "dtype": dtypes, "direction": WAYS},
            1,
            6000,
            shared,
            batches=(1,),
            large=True,
        )
        for lengths, dtypes, shared in (
            ((*LONG, *LONGEST), ["float32"], ANY_GPU),
            (LONG, ["float64"], ANY_GPU),
            (LONGEST, ["float64"], 74752),
            ((*CROWDED, *UNLISTED), REAL, None),
        )
    ),
    *(Spaces("fft-2d", {"M": [N], "N": [N]}, 100, 5000, batches=(1,)) for N in (512, 8192)),
    Spaces("scan-lf scan-ks", {"N": [2, 3, 31, 64, 250, 1000, 4097, 4100, 8191], "dtype": SCANNED}, 1, 1000),
    Spaces("scan-lf scan-ks", {"N": [2048], "dtype": SCANNED[::-1]}, 1, 1000, varied=True),
    Spaces("scan-lf scan-ks", {"N": [8192], "dtype": ["float32"]}, 60, 1000),
    Spaces("scan-lf scan-ks", {"N": [8192], "dtype": SCANNED}, 1, 1000),
    Spaces(
        "scan-long",
        {"N": [2, 3, 100, 8191, 2**20, 2**24 + 1, 2**31], "dtype": SUMMED},
        1,
        1000,
        batches=(1, 3),
    ),
    Spaces("scan-long", {"N": [2**31]}, 250, 1000, varied=True),
    Spaces(
        "scan-flags", {"N": [2, 3, 8191, 2**31 - 1], "dtype": SUMMED}, 40, 1000, varied=True, batches=(1,)
    ),
    Spaces(
        "scan-offsets",
        {"N": [2, 3, 8191, 2**31 - 1], "dtype": SUMMED, "ends": [1000]},
        *(40, 1000),
        varied=True,
        batches=(1,),
    ),
    Spaces("tridiag-cr tridiag-pcr tridiag-lf tridiag-wm", {"N": [2, 3, 31]}, 1, 1500),
    Spaces(
        "tridiag-cr tridiag-pcr tridiag-lf tridiag-wm",
        {"N": [64, 65, 100, 512, 1025, 2048, 4095, 4096]},
        *(60, 1500),
    ),
    *(
        Spaces(f"tridiag-{name}", {**sides, "N": lengths, "dtype": SOLVED}, least, most)
        for name, sides, some, many, most in (
            ("large", ONE, 8, 100, 1000),
            ("periodic-large", ONE, 8, 60, 250),
            ("several-large", SEVERAL, 4, 12, 200),
        )
        for lengths, least in ((SYSTEMS, some), (LONG_SYSTEMS, many))
    ),
    Spaces("gemm-batched gemv-batched potrf-batched trsm-batched", BATCHED, 1, 10**6, ANY_GPU),
    Spaces("getrf-batched geqrf-batched", BATCHED, 4, 10**6),
)


@pytest.mark.parametrize(
    ("name", "row"),
    [(name, row) for row in SPACES for name in row.kernels.split()],
    ids=lambda one: one if isinstance(one, str) else "",
)
def test_spaces_are_worth_a_search(name: str, row: Spaces) -> None:
    """Spaces are neither too small nor too large; default and stated answers are in them."""
    kernel = kernel_of(name)
    for sizes in sizes_of(row.sizes):
        for batch in (*row.batches, *[large_batch(sizes)] * row.large):
            workload = kernel.workload(sizes, batch)
            space, default = kernel.space(workload), kernel.default(workload)
            assert row.least <= len(space) <= row.most, workload
            assert all(one in space for one in (default, *kernel.stated_answers(workload, gpu=None))), (
                workload
            )
            if row.shared_bytes is not None:
                for stage in kernel.plan(workload, default).stages:
                    assert stage.shared_bytes <= row.shared_bytes, workload
                    assert stage.min_architecture <= 50, workload
    for tunable in kernel.tunables if row.varied else ():
        assert len({configuration.get(tunable) for configuration in space}) >= 2, tunable


@pytest.mark.parametrize("step", [5, pytest.param(1, marks=pytest.mark.exhaustive)], ids=["some", "all"])
@pytest.mark.parametrize("path", sorted(kernels_root().glob("*/kernel.toml")), ids=lambda p: p.parent.name)
def test_shipped_kernels(path: Path, step: int, *, kernels_differ: bool) -> None:
    """Every shipped kernel has a default at each size, right plans, and a large space at its largest."""
    part = 1 if kernels_differ or step == 1 else FEWER
    kernel = load_kernel_file(path)
    plain = [workload for workload in kernel.workloads() if len(workload.implied) == len(kernel.optional)]
    forms = [workload for workload in kernel.workloads() if workload not in plain]
    if step > 1:  # some, with every value of every size among them
        wanted = pairwise([dict(one.sizes) for one in forms], together=1)
        forms = [one for at, one in enumerate(forms) if at % (15 * part) == 0 or dict(one.sizes) in wanted]
    for place, workload in enumerate((*plain, *forms)):
        space = kernel.space(workload)
        assert kernel.default(workload) in space
        every = step if workload in plain else 7 * step  # forms differ in a template argument
        made = plans(kernel, workload, space, place, every=every, part=part)
        assert all(plan.stages for plan in made)
    largest = max(plain, key=lambda workload: workload.sizes)
    assert len(kernel.space(largest)) >= LEAST_CONFIGURATIONS.get(kernel.name, 60)


@pytest.mark.parametrize("sizes", [20, pytest.param(50, marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize("path", sorted(kernels_root().glob("*/kernel.toml")), ids=lambda p: p.parent.name)
def test_shipped_kernels_hold_in_all_of_their_ranges(path: Path, sizes: int, *, kernels_differ: bool) -> None:
    """Between the powers of two, and right beside them, defaults obey the rules and plans evaluate, too."""
    part = 1 if kernels_differ or sizes > 20 else FEWER
    kernel = load_kernel_file(path)
    ranges = [(name, values) for name, values in kernel.sizes.items() if isinstance(values, range)]
    others = {name: values[0] for name, values in kernel.sizes.items()}
    spread = 3 if kernel.recipe.loops else sizes  # long chains take long to write out
    for name, values in ranges:
        powers = [2**exponent for exponent in range(values[-1].bit_length())]
        sides = ((-1, 1), (1, -1)) if not kernel.recipe.loops else ((-1,), (1,))  # in turns for long chains
        beside = {power + step for place, power in enumerate(powers) for step in sides[place % 2]}
        asked = beside.union(values[:: max(1, len(values) // spread)])
        chosen = sorted(value for value in asked if value in values)  # an intersection would walk the range
        for place, value in enumerate(chosen[::-part]):
            workload = kernel.workload({**others, name: value}, batch=3)
            space = kernel.space(workload)
            every = max(1, len(space) // 5)
            made = plans(kernel, workload, space, place, every=every, part=part, most_stages=1000)
            assert all(plan.stages for plan in made)
