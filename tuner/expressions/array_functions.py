"""The functions of references over whole arrays."""

from collections.abc import Callable
from typing import Any

import numpy as np

from tuner.expressions.arithmetic import TroubleError
from tuner.expressions.parser import MAX_NODES

_MANY = MAX_NODES
WITH_AXIS = frozenset({"sum", "mean", "cumsum", "min", "max"})


def wide(value: Any) -> Any:  # noqa: ANN401 - a scalar or an array
    """A value in the widest type of its kind, so that whole numbers have 64 bits wherever they come from."""
    array = np.asarray(value)
    target = {"f": np.float64, "i": np.int64, "u": np.int64, "c": np.complex128}.get(array.dtype.kind)
    if array.dtype == np.uint64 or target is None:
        return array
    return array.astype(target, copy=False)


def folded(function: Callable[[Any, Any], Any], values: list[Any]) -> Any:  # noqa: ANN401 - arrays
    """The values put together from the left, two at a time."""
    result = values[0]
    for value in values[1:]:
        result = function(result, value)
    return result


def whole(value: Any) -> int:  # noqa: ANN401 - a number of whatever type
    """An axis as an int.

    Raises:
        TroubleError: it is no whole number.
    """
    if np.ndim(value) or np.asarray(value).dtype.kind not in "iu":
        raise TroubleError("an axis is a whole number")
    return int(value)


def _along(function: Callable[..., Any]) -> Callable[..., Any]:
    def applied(x: Any, axis: Any = None) -> Any:  # noqa: ANN401 - arrays
        return function(x, axis=None if axis is None else whole(axis))

    return applied


def _extreme(pairwise: Callable[[Any, Any], Any], reduced: Callable[..., Any]) -> Callable[..., Any]:
    """The extreme of one array, or element by element of several."""

    def applied(*values: Any, axis: int | None = None) -> Any:  # noqa: ANN401 - arrays
        if len(values) == 1:
            return reduced(values[0], axis=axis)
        if axis is not None:
            raise TroubleError("axis needs a single array")
        return folded(pairwise, list(values))

    return applied


def _transposed(x: Any, *axes: Any) -> Any:  # noqa: ANN401 - arrays
    return np.transpose(x, [whole(axis) for axis in axes] or None)


ARRAY_FUNCTIONS: dict[str, tuple[int, int, Callable[..., Any]]] = {  # least and most values
    "sqrt": (1, 1, np.sqrt),
    "exp": (1, 1, np.exp),
    "log": (1, 1, np.log),
    "log2": (1, 1, np.log2),
    "sin": (1, 1, np.sin),
    "cos": (1, 1, np.cos),
    "tanh": (1, 1, np.tanh),
    "abs": (1, 1, np.abs),
    "floor": (1, 1, np.floor),
    "ceil": (1, 1, np.ceil),
    "int": (1, 1, lambda x: np.trunc(x).astype(np.int64)),
    "min": (1, _MANY, _extreme(np.minimum, np.min)),
    "max": (1, _MANY, _extreme(np.maximum, np.max)),
    "sum": (1, 2, _along(np.sum)),
    "mean": (1, 2, _along(np.mean)),
    "cumsum": (1, 2, _along(np.cumsum)),
    "matmul": (2, 2, np.matmul),
    "transpose": (1, 9, _transposed),
    "where": (3, 3, np.where),
    "select": (3, 3, np.where),
}
