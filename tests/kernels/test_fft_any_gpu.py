"""Transforms of any length on a GPU: right to rounding, in both types and directions, each row by itself."""

import functools
import random
from typing import Any

import pytest
from gpu_kernels import compile_ahead, runs_here

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.plan import Plan
from tuner.problems.lookup import problem_for

pytestmark = pytest.mark.gpu

CATALOG = Catalog.load(search_path=[kernels_root()])
LENGTHS = {
    "fft-any": (2, 30, 97, 210, 1000, 1009, 3125, 4093, 8000),
    "fft-real": (3, 34, 105, 1000, 2018, 8190),
    "fft-long": (8193, 10000, 10007, 12136, 37888, 3**9, 65537, 277907, 10**6, 2622880, 2**24 - 3, 2**24),
    "fft-real-long": (8193, 10000, 10007, 16384, 3**9, 65537, 277907, 2352419, 10**6, 2**24 - 3, 2**24),
}
ROUNDOFF = {"complex64": 2.0**-24, "float32": 2.0**-24, "complex128": 2.0**-53, "float64": 2.0**-53}
ELEMENTS = 2**20
LONGEST_WHOLE = 20736
ROUNDINGS = 16


CASES = [
    (name, N, k % 2, direction)
    for name, lengths in LENGTHS.items()
    for k, N in enumerate(lengths)
    for direction in ("forward", "inverse")
]


@functools.cache
def plan_of(name: str, N: int, turn: int, direction: str) -> Plan:
    """The default forward; back a drawn configuration, of long rows one that a block holds; types in turn."""
    kernel = CATALOG.kernel(name)
    dtype = str(kernel.sizes["dtype"][(turn + (direction == "inverse")) % 2])
    workload = kernel.workload({"N": N, "dtype": dtype, "direction": direction}, max(2, ELEMENTS // N + 1))
    space = [] if direction == "forward" or N > LONGEST_WHOLE else list(kernel.space(workload))
    drawn = [one for one in space if N <= 2048 or dict(one).get("form") == "whole"]
    chosen = random.Random(N).choice(drawn) if drawn else kernel.default(workload)  # noqa: S311 - a sample
    return kernel.plan(workload, chosen)


@pytest.fixture(scope="module")
def _compiled(cp: Any) -> None:
    compile_ahead(cp, [plan_of(*case) for case in CASES])


def given(cp: Any, plan: Plan) -> Any:
    """Normal numbers; of frequencies, those of a real row."""
    buffer = next(buffer for buffer in plan.buffers if buffer.role == "in")
    rng = cp.random.default_rng(3)
    x = rng.standard_normal(buffer.shape)
    if buffer.dtype.startswith("complex"):
        x = x + 1j * rng.standard_normal(buffer.shape)
    return x.astype(buffer.dtype)


def right(cp: Any, plan: Plan, x: Any) -> Any:
    """By CuPy, in double precision."""
    sizes = dict(plan.workload.sizes)
    inverse, N = sizes["direction"] == "inverse", int(sizes["N"])
    if not plan.workload.kernel.startswith("fft-real"):
        return (cp.fft.ifft if inverse else cp.fft.fft)(x.astype(cp.complex128), axis=1)
    if not inverse:
        return cp.fft.rfft(x.astype(cp.float64), axis=1)
    mirrored = cp.conj(x[:, 1 : (N + 1) // 2][:, ::-1])
    whole = cp.concatenate([x, mirrored], axis=1).astype(cp.complex128)
    whole[:, 0] = whole[:, 0].real
    if N % 2 == 0:
        whole[:, N // 2] = whole[:, N // 2].real
    return cp.fft.ifft(whole, axis=1).real


@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize(("name", "N", "turn", "direction"), CASES)
def test_any_length_is_right_to_rounding(cp: Any, name: str, N: int, turn: int, direction: str) -> None:
    """Rows are within roundings of CuPy's, all keep their law; a row of NaN leaves the others as they are."""
    plan = plan_of(name, N, turn, direction)
    sizes = dict(plan.workload.sizes)
    kernel, values = plan.workload.kernel, dict(plan.configuration)
    if not runs_here(cp, plan):
        pytest.skip("not for this GPU")
    x = given(cp, plan)
    y = tuner.apply(kernel, x, configuration=values, **sizes)
    reference = right(cp, plan, x)
    error = cp.linalg.norm(y - reference, axis=1) / cp.linalg.norm(reference, axis=1)
    assert float(error.max()) <= ROUNDINGS * ROUNDOFF[str(sizes["dtype"])]
    assert problem_for(plan.problem).residual(cp, {"x": x}, {"y": y}, sizes).ok
    x[1] = cp.nan
    spoilt = tuner.apply(kernel, x, configuration=values, **sizes)
    assert bool(cp.isnan(spoilt[1]).all())
    assert bool((spoilt[2:] == y[2:]).all())
    assert bool((spoilt[0] == y[0]).all())


def test_rows_that_fft_has_not_are_transformed_when_fft_is_applied(cp: Any) -> None:
    """Lengths that are no powers of two, longer ones and complex128 go to the kernels that take them."""
    rng = cp.random.default_rng(5)
    for shape, dtype, tunable in (
        ((50, 1000), "complex64", "r"),
        ((50, 1024), "complex128", "r"),
        ((5, 10000), "complex64", "skew"),
        ((5, 16384), "complex64", "form"),
    ):
        x = (rng.standard_normal(shape) + 1j * rng.standard_normal(shape)).astype(dtype)
        assert tunable in dict(tuner.chosen("fft", x).configuration)
        y = tuner.apply("fft", x)
        reference = cp.fft.fft(x.astype(cp.complex128), axis=1)
        assert float(cp.linalg.norm(y - reference) / cp.linalg.norm(reference)) <= 8 * ROUNDOFF[dtype]
