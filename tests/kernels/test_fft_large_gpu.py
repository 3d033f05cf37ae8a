"""Every form of the long transforms on a real GPU: right, launch after launch, at any batch."""

import random
from typing import Any

import numpy as np
import pytest
from gpu_kernels import runs_here

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Configuration

pytestmark = pytest.mark.gpu

KERNEL = Catalog.load().kernel("fft-large")
SEED = 3
POINTS = 2**23
LAUNCHES = 300
CASES = [
    (form, N)
    for N in (int(size) for size in KERNEL.sizes["N"])
    for form in dict.fromkeys(str(c["form"]) for c in KERNEL.space(KERNEL.workload({"N": N})))
]


def numbers(cp: Any, batch: int, N: int) -> Any:
    rng = cp.random.default_rng(SEED)
    return rng.standard_normal((batch, 2 * N), dtype=cp.float32).view(cp.complex64)


def drawn(cp: Any, form: str, N: int, count: int) -> list[Configuration]:
    """Seeded configurations of a form that this GPU has the instructions for."""
    workload = KERNEL.workload({"N": N})
    space = [c for c in KERNEL.space(workload) if c["form"] == form]
    runs = [
        c
        for c in random.Random(SEED).sample(space, min(len(space), 4 * count))  # noqa: S311 - a sample, not a secret
        if runs_here(cp, KERNEL.plan(workload, c))
    ]
    if not runs:
        pytest.skip("not for this GPU")
    return runs[:count]


def worst_error(cp: Any, x: Any, y: Any, direction: str) -> float:
    """The largest relative L2 error of a row against CuPy's transform in complex128."""
    reference = (cp.fft.fft if direction == "forward" else cp.fft.ifft)(x.astype(cp.complex128), axis=1)
    return float((cp.linalg.norm(y - reference, axis=1) / cp.linalg.norm(reference, axis=1)).max())


@pytest.mark.parametrize(("form", "N"), CASES)
def test_every_form_transforms_to_rounding(cp: Any, form: str, N: int) -> None:
    """Seeded configurations answer within the target, forward and inverse, also a batch of one."""
    for configuration in drawn(cp, form, N, 3):
        for batch, direction in [(max(3, POINTS // N), "forward"), (5, "inverse"), (1, "forward")]:
            x = numbers(cp, batch, N)
            y = tuner.apply("fft-large", x, configuration=dict(configuration.items()), direction=direction)
            error = worst_error(cp, x, y, direction)
            assert error <= 1e-7 * np.log2(N), (configuration, batch, direction)


@pytest.mark.parametrize("form", ["ring", "ring-tma"])
@pytest.mark.parametrize("N", [2**17, 2**19, 2**21])
def test_rings_give_the_same_answer_every_time(cp: Any, form: str, N: int) -> None:
    """Launches one after another, into a poisoned output, agree with the first to the last bit."""
    x = numbers(cp, 2**25 // N, N)
    for configuration in drawn(cp, form, N, 2):
        values = dict(configuration.items())
        expected = tuner.apply("fft-large", x, configuration=values)
        assert worst_error(cp, x[-2:], expected[-2:], "forward") <= 1e-7 * np.log2(N)
        wrong = cp.zeros((), cp.int64)
        y = cp.empty_like(expected)
        for _ in range(LAUNCHES):
            y.fill(cp.nan)
            tuner.apply("fft-large", x, configuration=values, out=y)
            wrong += (y.view(cp.int64) != expected.view(cp.int64)).sum()
        assert int(wrong) == 0, configuration
