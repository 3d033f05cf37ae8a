"""Plans and matrices for the tests of the batched kernels of dense linear algebra.

Arrays are column-major: element (i, j) of problem b of ``A`` is ``A[b, j, i]``.
"""

from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
from adaptive_kernels import BOUNDS, sample
from kernel_plans import kernel_of
from linalg_runs import DTYPES, answered, judged
from numpy.typing import NDArray

from tuner.model.plan import Plan, TunableValue

EDGES = (47, 48, 49, 63, 64, 65, 96, 127, 128)


def plan_with(name: str, n: int, dtype: str, batch: int = 3, **values: TunableValue) -> Plan:
    """The default with other values, or where that is no configuration the first that has these values."""
    kernel = kernel_of(f"{name}-batched")
    workload = kernel.workload({"n": n, "dtype": dtype}, batch)
    wanted = kernel.allowed(workload, {**dict(kernel.default(workload).items()), **values})
    if wanted is None:
        wanted = next(c for c in kernel.space(workload) if values.items() <= dict(c.items()).items())
    return kernel.plan(workload, wanted)


def untuned_plans(name: str, n: int, dtype: str, batch: int = 3) -> list[Plan]:
    """Those of the default and of the stated answers."""
    kernel = kernel_of(f"{name}-batched")
    workload = kernel.workload({"n": n, "dtype": dtype}, batch)
    answers = dict.fromkeys([kernel.default(workload), *kernel.stated_answers(workload, None)])
    return [kernel.plan(workload, one) for one in answers]


def sampled_plans(name: str, n: int, dtype: str, together: int = 1) -> list[Plan]:
    """Plans that hold each value, or pair of values the host sees; the last of their blocks is not full."""
    kernel = kernel_of(f"{name}-batched")
    return sample(kernel, kernel.workload({"n": n, "dtype": dtype}, 5), together, BOUNDS[: together - 1])


def matrices(array: NDArray[Any]) -> NDArray[np.float64]:
    """Column-major matrices as NumPy has them, in float64."""
    wide: NDArray[np.float64] = np.swapaxes(array, -1, -2).astype(np.float64)
    return wide


def column_major(array: NDArray[Any], dtype: str) -> NDArray[Any]:
    """The opposite of ``matrices``."""
    return np.ascontiguousarray(np.swapaxes(array, -1, -2)).astype(dtype)


def factored(plan: Plan, given: NDArray[Any]) -> dict[str, NDArray[Any]]:
    """Outputs for matrices as NumPy has them, (batch, n, n); those that are matrices likewise."""
    dtype = next(buffer.dtype for buffer in plan.buffers if buffer.name == "A")
    outputs = answered(plan, {"A": column_major(given, dtype)})
    outputs["A"] = np.swapaxes(outputs["A"], 1, 2)
    return outputs


def backward_error_is_small(plan: Plan, given: NDArray[Any]) -> bool:
    """Whether the law accepts the factors of these matrices."""
    dtype = next(buffer.dtype for buffer in plan.buffers if buffer.name == "A")
    inputs = {"A": column_major(given, dtype)}
    return judged(plan, inputs, answered(plan, inputs)).ok


def conditioned(n: int, condition: float, count: int) -> NDArray[np.float64]:
    """Random matrices whose singular values fall from 1 to 1 / condition in even steps on a log scale."""
    rng = np.random.default_rng(n)
    left, _ = np.linalg.qr(rng.standard_normal((count, n, n)))
    right, _ = np.linalg.qr(rng.standard_normal((count, n, n)))
    made: NDArray[np.float64] = (left * condition ** -np.linspace(0, 1, n)) @ right
    return made


def corner_plans(name: str, samples: Sequence[int]) -> Iterator[Plan]:
    """Defaults at sizes that are small, odd, and the largest; and samples."""
    kernel = kernel_of(f"{name}-batched")
    for dtype in DTYPES:
        for n in (1, 7, 32, 128):
            yield plan_with(name, n, dtype)
        for n in samples:
            yield from sample(kernel, kernel.workload({"n": n, "dtype": dtype}))[:4]
