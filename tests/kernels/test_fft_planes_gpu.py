"""Transforms of planes and columns, and convolutions, on a GPU against CuPy's."""

import functools
import random
from typing import Any, NamedTuple

import pytest
from gpu_kernels import compile_ahead, runs_here

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.plan import Plan
from tuner.problems.lookup import problem_for

pytestmark = pytest.mark.gpu

CATALOG = Catalog.load(search_path=[kernels_root()])
SIZES: tuple[tuple[str, dict[str, int]], ...] = (
    *(("fft-2d", {"M": m, "N": n}) for m, n in ((2, 3), (64, 64), (97, 210), (1000, 30), (512, 4096))),
    *(("fft-columns", {"N": n, "W": w}) for n, w in ((2, 5), (30, 33), (512, 100), (1009, 7), (8192, 16))),
    *(("fft-convolution", {"N": n}) for n in (2, 97, 250, 1000, 2048, 4096)),
)
ROUNDOFF = {"complex64": 2.0**-24, "complex128": 2.0**-53}
ROUNDINGS = 24  # of two transforms
PICKS = (None, 1, 2)  # the default, and what these seeds draw


class Case(NamedTuple):
    """A kernel at some sizes; ``pick`` is the seed that draws its configuration, None for the default."""

    kernel: str
    sizes: tuple[tuple[str, int], ...]
    dtype: str
    direction: str
    pick: int | None

    def __str__(self) -> str:
        numbers = "x".join(str(number) for _, number in self.sizes)
        return f"{self.kernel}-{numbers}-{self.dtype}-{self.direction}-{self.pick}"


CASES = [
    Case(name, tuple(sizes.items()), dtype, direction, pick)
    for name, sizes in SIZES
    for dtype in ROUNDOFF
    for direction in (("",) if name == "fft-convolution" else ("forward", "inverse"))
    for pick in PICKS
]


@functools.cache
def plan_of(case: Case) -> Plan:
    """Of three planes, or sets of columns, or rows."""
    kernel = CATALOG.kernel(case.kernel)
    way = {"direction": case.direction} if case.direction else {}
    workload = kernel.workload({**dict(case.sizes), "dtype": case.dtype, **way}, 3)
    if case.pick is None:
        return kernel.plan(workload, kernel.default(workload))
    drawn = random.Random(case.pick).choice(list(kernel.space(workload)))  # noqa: S311 - a sample
    return kernel.plan(workload, drawn)


@pytest.fixture(scope="module")
def _compiled(cp: Any) -> None:
    compile_ahead(cp, map(plan_of, CASES))


def right(cp: Any, case: Case, given: list[Any]) -> Any:
    """By CuPy, in double precision."""
    x = given[0].astype(cp.complex128)
    if case.kernel == "fft-convolution":
        return cp.fft.ifft(cp.fft.fft(x, axis=1) * given[1], axis=1)
    axes = (1, 2) if case.kernel == "fft-2d" else (1,)
    return (cp.fft.ifftn if case.direction == "inverse" else cp.fft.fftn)(x, axes=axes)


@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize("case", CASES, ids=str)
def test_transforms_of_planes_are_right_to_rounding(cp: Any, case: Case) -> None:
    """Answers are within roundings of CuPy's and keep their law; a plane of NaN leaves the others alone."""
    plan = plan_of(case)
    if not runs_here(cp, plan):
        pytest.skip("not for this GPU")
    rng, values, sizes = cp.random.default_rng(3), dict(plan.configuration), dict(plan.workload.sizes)
    inputs = {
        buffer.name: (rng.standard_normal(buffer.shape) + 1j * rng.standard_normal(buffer.shape)).astype(
            case.dtype
        )
        for buffer in plan.buffers
        if buffer.role == "in"
    }
    given = list(inputs.values())
    y = tuner.apply(case.kernel, *given, configuration=values, **sizes)
    reference = right(cp, case, given)
    error = float(cp.linalg.norm(y - reference) / cp.linalg.norm(reference))
    assert error <= ROUNDINGS * ROUNDOFF[case.dtype]
    assert problem_for(plan.problem).residual(cp, inputs, {"y": y}, sizes).ok
    given[0][1] = cp.nan
    spoilt = tuner.apply(case.kernel, *given, configuration=values, **sizes)
    assert bool(cp.isnan(spoilt[1]).all())
    assert bool((spoilt[0] == y[0]).all())
    assert bool((spoilt[2] == y[2]).all())
