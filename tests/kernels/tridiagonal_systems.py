"""Tridiagonal systems, what the host makes of them, and how far answers are from the right ones."""

from typing import Any

import host_build
import numpy as np
import numpy.typing as npt

from tuner.model.plan import Plan
from tuner.problems.base import poison
from tuner.problems.tridiagonal import solve

Array = npt.NDArray[Any]
System = dict[str, Array]

BATCH = 5  # odd, so that the last block is not full
MARGIN = 0.05


def dominant(batch: int, n: int, seed: int = 0, dtype: str = "float32") -> System:
    """Random systems whose diagonal exceeds the rest of its row by ``MARGIN`` at least."""
    rng = np.random.default_rng([n, seed])
    a, c, d = rng.uniform(-1, 1, (3, batch, n))
    sign = rng.choice([-1, 1], (batch, n))
    if np.dtype(dtype).kind == "c":
        a, c, d = (array * np.exp(2j * np.pi * rng.uniform(0, 1, (batch, n))) for array in (a, c, d))
        sign = np.exp(2j * np.pi * rng.uniform(0, 1, (batch, n)))
    b = sign * (abs(a) + abs(c) + MARGIN + rng.uniform(0, 1, (batch, n)))
    return {name: array.astype(dtype) for name, array in zip("abcd", (a, b, c, d), strict=True)}


def several(batch: int, n: int, sides: int, dtype: str = "float32") -> System:
    """Dominant systems whose right sides lie one after the other."""
    right = [dominant(batch, n, k, dtype)["d"] for k in range(sides)]
    return {**dominant(batch, n, dtype=dtype), "d": np.concatenate(right, axis=1)}


def one_by_one(system: System) -> System:
    """Systems of one right side each, from systems of several."""
    n = system["b"].shape[1]
    matrix = {name: system[name].repeat(system["d"].shape[1] // n, axis=0) for name in "abc"}
    return {**matrix, "d": system["d"].reshape(-1, n)}


def second_differences(batch: int, n: int) -> System:
    """Rows (-1, 2, -1), whose condition number grows with the square of their number."""
    system = {
        name: np.full((batch, n), value, np.float32) for name, value in zip("abc", (-1, 2, -1), strict=True)
    }
    right = np.random.default_rng(n).uniform(-1, 1, (batch, n)).astype(np.float32)
    return {**system, "d": right}


def solved(
    plan: Plan,
    system: System,
    order: host_build.Order = "forward",
) -> Array:
    """What the host computes; scratch holds NaN before."""
    x = np.full_like(system["d"], np.nan)
    inputs = {name: array.copy() for name, array in system.items()}
    for array in inputs.values():
        array.flags.writeable = False  # a kernel that writes an input fails
    scratch = {b.name: np.empty(b.shape, x.dtype) for b in plan.buffers if b.role == "scratch"}
    for array in scratch.values():
        poison(array)
    arrays = {**inputs, **scratch, "x": x}
    host_build.run_plan(plan, arrays, order=order, seed=3)
    return x


def reference(system: System) -> Array:
    x: Array = solve(*(system[name] for name in "abcd"))
    return x


def thomas(system: System) -> Array:
    """The solution by elimination from the first row on, in long double."""
    wide: Any = np.clongdouble if system["b"].dtype.kind == "c" else np.longdouble
    a, b, c, x = (system[name].astype(wide) for name in "abcd")
    upper = np.zeros_like(b)
    for i in range(b.shape[1]):
        lower = a[:, i] if i else 0 * a[:, i]
        pivot = b[:, i] - lower * upper[:, i - 1]
        x[:, i] = (x[:, i] - lower * x[:, i - 1]) / pivot
        upper[:, i] = c[:, i] / pivot
    for i in range(b.shape[1] - 2, -1, -1):
        x[:, i] = x[:, i] - upper[:, i] * x[:, i + 1]
    return x


def error(x: Array, right: Array) -> float:
    """Largest error of a system by its largest unknown; NaN where something was not written."""
    return float((abs(x - right).max(axis=1) / abs(right).max(axis=1)).max())


def backward_error(system: System, x: Array, *, periodic: bool = False) -> float:
    """Largest defect of a system, whose ends may meet, by the norms of matrix and solution."""
    a, b, c, d = (system[name].astype(np.float64) for name in "abcd")
    defect = b * x - d
    defect[:, 1:] += a[:, 1:] * x[:, :-1]
    defect[:, :-1] += c[:, :-1] * x[:, 1:]
    if periodic:
        defect[:, 0] += a[:, 0] * x[:, -1]
        defect[:, -1] += c[:, -1] * x[:, 0]
    norm = (abs(a) + abs(b) + abs(c)).max(axis=1) * abs(x).max(axis=1)
    return float((abs(defect).max(axis=1) / norm).max())
