"""Rows for scans of any operator and type, their right answers by NumPy, and errors of what kernels left."""

import itertools
import math
from typing import Any

import numpy as np
import numpy.typing as npt

from tuner.model.elements import bfloat16_bits, bfloat16_values
from tuner.model.plan import Plan

Array = npt.NDArray[Any]
DTYPES = ("float32", "float64", "int32", "int64", "uint32", "float16", "bfloat16", "complex64")
OPERATORS = ("sum", "min", "max", "product", "and", "or", "xor")
FORMS = ("inclusive", "exclusive")
WAYS = ("forward", "reverse")
ROUNDOFF = {
    "float32": 2.0**-24,
    "float64": 2.0**-53,
    "float16": 2.0**-11,
    "bfloat16": 2.0**-8,
    "complex64": 2.0**-24,
}
UNITS = 8  # of roundoff, by the row's largest value, that sums may lose; products lose some for every factor

_WIDE: dict[str, Any] = {"f": np.longdouble, "c": np.clongdouble}  # by NumPy's letters of kinds
_UFUNCS = {
    "sum": np.add,
    "min": np.minimum,
    "max": np.maximum,
    "product": np.multiply,
    "and": np.logical_and,
    "or": np.logical_or,
    "xor": np.logical_xor,
}


def words_of(plan: Plan) -> tuple[str, str, str, str]:
    """Type, operator, form and direction of a plan."""
    sizes = {"operator": "sum", "direction": "forward", **dict(plan.workload.sizes)}
    dtype, operator, form, way = (str(sizes[k]) for k in ("dtype", "operator", "form", "direction"))
    return dtype, operator, form, way


def numbers(plan: Plan, seed: int) -> Array:
    """Rows whose every element tells: logical ones rarely change, products neither vanish nor overflow."""
    dtype, operator, _, _ = words_of(plan)
    shape = plan.buffers[0].shape
    rng = np.random.default_rng(seed)
    numpy_type = np.dtype("float32" if dtype == "bfloat16" else dtype)
    if operator in ("and", "or", "xor"):
        rare = rng.random(shape) < {"and": 1 - 1 / shape[1], "or": 1 / shape[1], "xor": 0.5}[operator]
        return rare.astype(numpy_type)
    if numpy_type.kind == "c":
        near = min(0.5, 4 / math.sqrt(shape[1]))
        low, high = (math.sqrt(0.5) - near, math.sqrt(0.5) + near) if operator == "product" else (-1, 1)
        return (rng.uniform(low, high, shape) + 1j * rng.uniform(low, high, shape)).astype(numpy_type)
    if numpy_type.kind == "f":
        near = min(0.5, 4 / math.sqrt(shape[1]))
        x = rng.uniform(1 - near, 1 + near, shape) if operator == "product" else rng.uniform(-1, 1, shape)
        return bfloat16_values(bfloat16_bits(x)) if dtype == "bfloat16" else x.astype(numpy_type)
    info = np.iinfo(numpy_type)
    x = rng.integers(info.min, info.max, shape, numpy_type, endpoint=True)
    return x | numpy_type.type(1) if operator == "product" else x


def scanned_rows(x: Array, operator: str, form: str, way: str) -> Array:
    """The right answer, in long double or the type of whole numbers; an operator's neutral value is exact."""
    x = x[:, ::-1] if way == "reverse" else x
    wide = x.astype(_WIDE.get(x.dtype.kind, x.dtype))
    if operator in ("and", "or", "xor"):
        wide = wide != 0
    with np.errstate(all="ignore"):
        y = _UFUNCS[operator].accumulate(wide, axis=1, dtype=wide.dtype)
    if form == "exclusive":
        y = np.concatenate([np.full_like(y[:, :1], neutral(operator, x.dtype)), y[:, :-1]], axis=1)
    return y[:, ::-1] if way == "reverse" else y


def scanned_segments(x: Array, heads: Array, operator: str, form: str, way: str) -> Array:
    """The right answer of segments, one after another; ``heads`` is true where they begin."""
    y = np.empty(x.shape, _WIDE.get(x.dtype.kind, x.dtype))
    for row, begins in enumerate(heads):
        edges = [0, *(np.flatnonzero(begins[1:]) + 1), x.shape[1]]
        for start, end in itertools.pairwise(edges):
            y[row, start:end] = scanned_rows(x[row : row + 1, start:end], operator, form, way)[0]
    return y


def neutral(operator: str, dtype: np.dtype[Any]) -> complex:
    """What joined with a value gives that value."""
    if operator in ("min", "max"):
        if dtype.kind not in "fc":
            return (np.iinfo(dtype).min, np.iinfo(dtype).max)[operator == "min"]
        bound = np.inf if operator == "min" else -np.inf
        return complex(bound, bound) if dtype.kind == "c" else bound
    return {"sum": 0, "product": 1, "and": 1, "or": 0, "xor": 0}[operator]


def error(plan: Plan, x: Array, y: Array, heads: Array | None = None) -> float:
    """The worst error of a row by what is allowed; infinity where what must be exact is not.

    Args:
        plan: of the scan.
        x: inputs.
        y: outputs.
        heads: where segments begin; None of rows without segments.
    """
    dtype, operator, form, way = words_of(plan)
    if heads is None:
        right = scanned_rows(x, operator, form, way)
    else:
        right = scanned_segments(x, heads, operator, form, way)
    if dtype not in ROUNDOFF or operator not in ("sum", "product"):
        return 0.0 if np.array_equal(y, right.astype(y.dtype)) else math.inf
    scale = abs(right).max(axis=1)
    scale[scale == 0] = 1
    errors = abs(y - right).max(axis=1) / scale
    worst = float(errors.max())
    units = UNITS + (2 * math.sqrt(x.shape[1]) if operator == "product" else 0)
    return worst / (units * ROUNDOFF[dtype]) if worst < math.inf else math.inf
