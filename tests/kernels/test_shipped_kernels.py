"""The files of the shipped kernels: defaults, rules and plans at all their sizes.

Fewer are planned where no kernel differs from main's: then a fault is in the code that all of them share.
"""

from collections.abc import Iterator
from pathlib import Path

import pytest
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
    "potrf": 40,  # outer blocks of a large matrix are wide, and its panels few
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
