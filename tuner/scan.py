"""Scans on the GPU by the catalogue's tuned kernels: running sums, products, minima and maxima.

Arrays are those that ``tuner.apply`` takes, of any axes, strides and batch; results are new arrays of the
caller's library, in its current stream. Configurations are chosen as ``tuner.apply`` chooses them. See
docs/howto/arrays.md.
"""

from typing import Any

import numpy as np

from tuner.application.borrowing import BorrowedArray
from tuner.application.functions import Call, Straight, array_of, flag, perform
from tuner.application.keys import Array
from tuner.model.elements import BFLOAT16, bfloat16_bits, bfloat16_values
from tuner.problems.scans import OPERATORS, PrefixOperator

__all__ = ["accumulate", "cumprod", "cumsum"]

_TYPES = ("float16", "bfloat16", "float32", "float64", "int32", "int64", "uint32", "complex64")
_LOGICAL = ("and", "or", "xor")


def cumsum(x: Any, axis: int | None = None, dtype: Any = None) -> Any:  # noqa: ANN401 - an array on the GPU
    """Running sums along an axis, as ``cupy.cumsum``.

    Args:
        x: an array of any shape.
        axis: along which; None for all elements in their order.
        dtype: that is summed in; None for that of x, of whole numbers and bool 64 bits.

    Raises:
        InputError: an argument cannot be used; the message names it and what would be right.
        DeviceError: the GPU has no room.
    """
    return perform("tuner.scan.cumsum", _numpys, {"x": x}, "sum", axis, _name(dtype))


def cumprod(x: Any, axis: int | None = None, dtype: Any = None) -> Any:  # noqa: ANN401 - an array on the GPU
    """Running products along an axis, as ``cupy.cumprod``; see ``cumsum``."""
    return perform("tuner.scan.cumprod", _numpys, {"x": x}, "product", axis, _name(dtype))


def accumulate(
    x: Any,  # noqa: ANN401 - an array on the GPU
    operator: str = "sum",
    axis: int = -1,
    *,
    exclusive: bool = False,
    reverse: bool = False,
    heads: Any = None,  # noqa: ANN401 - an array on the GPU
) -> Any:  # noqa: ANN401 - same
    """Running results of an operator along an axis, in the type of x.

    Args:
        x: float16, bfloat16, float32, float64, int32, int64, uint32 or complex64, of any shape; for logical
            operators also bool.
        operator: ``sum``, ``product``, ``min``, ``max``, or one of the logical ``and``, ``or``, ``xor``, to
            which all is true that is not zero, and which make ones and zeros.
        axis: along which.
        exclusive: leave each element out of its own result; the first one is the operator's identity.
        reverse: begin at the end.
        heads: where segments begin: bool or whole numbers that are not zero there, of the shape of x. Each
            segment is scanned by itself. None for one segment a row.

    Raises:
        InputError: an argument cannot be used; the message names it and what would be right.
        DeviceError: the GPU has no room.
    """
    options = operator, axis, exclusive, reverse
    if heads is None:
        return perform("tuner.scan.accumulate", _accumulated, {"x": x}, *options)
    return perform("tuner.scan.accumulate", _segmented, {"x": x, "heads": heads}, *options)


def _numpys(call: Call, x: BorrowedArray, operator: str, axis: object, dtype: object) -> Straight | Array:
    """Types and axes as NumPy and CuPy take them."""
    array, wanted = x.array, x.dtype if dtype is None else dtype
    if dtype is None and (x.dtype == "bool" or "int" in x.dtype):
        wanted = "uint64" if x.dtype.startswith("u") else "int64"
    if wanted != x.dtype:
        if wanted not in (*_TYPES, "uint64") or BFLOAT16 in (wanted, x.dtype):
            raise call.wrong(f"dtype is {dtype!r} for x of {x.dtype}; choose from {', '.join(_TYPES)}")
        array = array.astype(wanted)
    if axis is None:
        array, axis = array if array.ndim == 1 else array.reshape(-1), 0
    if wanted != "uint64":
        lent = x if array is x.array else BorrowedArray(array, None, wanted)
        return _accumulated(call, lent, operator, axis, False, False)
    # sums and products of 64 bits wrap alike, whatever their sign
    lent = BorrowedArray(array.view("int64"), None, "int64")
    return array_of(_accumulated(call, lent, operator, axis, False, False)).view("uint64")


def _segmented(  # noqa: PLR0917 - those of the function
    call: Call,
    x: BorrowedArray,
    heads: BorrowedArray,
    operator: object,
    axis: object,
    exclusive: object,
    reverse: object,
) -> Straight | Array:
    return _accumulated(call, x, operator, axis, exclusive, reverse, heads)


def _accumulated(  # noqa: PLR0917 - those of the function
    call: Call,
    x: BorrowedArray,
    operator: object,
    axis: object,
    exclusive: object,
    reverse: object,
    heads: BorrowedArray | None = None,
) -> Straight | Array:
    cp, array = call.cp, x.array
    if not isinstance(operator, str) or operator not in OPERATORS:
        raise call.wrong(f"operator is {operator!r}; choose from {', '.join(OPERATORS)}")
    if x.dtype == "bool" and operator in _LOGICAL:
        numbers = BorrowedArray(array.astype("int32"), None, "int32")
        found = _accumulated(call, numbers, operator, axis, exclusive, reverse, heads)
        return array_of(found).astype("bool")
    if x.dtype not in _TYPES:
        also = ", bool" if operator in _LOGICAL else ""
        raise call.wrong(f"x has dtype {x.dtype}; it must be one of {', '.join(_TYPES)}{also}")
    exclusive, reverse = flag(call, "exclusive", exclusive), flag(call, "reverse", reverse)
    if not array.ndim:
        raise call.wrong("x has shape (); it must have an axis")
    place = call.axis("axis", axis, array.ndim)
    flags = None if heads is None else _flags(call, heads, array.shape)
    if not array.size:
        return cp.empty(array.shape, array.dtype)
    moved = cp.moveaxis(array, place, -1)
    if moved.shape[-1] == 1:
        return _single(call, x, operator, exclusive=exclusive)
    sizes: dict[str, int | str] = {}
    sizes |= {"dtype": x.dtype} if x.dtype == BFLOAT16 else {}
    sizes |= {"operator": operator} if operator != "sum" else {}
    sizes |= {"form": "exclusive"} if exclusive else {}
    sizes |= {"direction": "reverse"} if reverse else {}
    rows = [call.rows(moved, apart=True)]
    if flags is None or heads is None:
        kernel, own = "scan-lf", call.same(rows[0], moved, x)
    else:
        turned = cp.moveaxis(flags, place, -1)
        rows.append(call.rows(turned, apart=True))
        kernel = "scan-flags"
        own = call.same(rows[0], moved, x) and call.same(rows[1], turned, heads)
    if own:
        return Straight(kernel, tuple(one.array for one in (x, heads) if one is not None), sizes)
    return cp.moveaxis(Straight(kernel, tuple(rows), sizes).run().reshape(moved.shape), -1, place)


def _flags(call: Call, heads: BorrowedArray, shape: tuple[int, ...]) -> Array:
    """Beginnings of segments as kernels take them, a byte each; those of bool are that already."""
    array = heads.array
    if array.dtype.kind not in "biu" or heads.dtype == BFLOAT16:
        raise call.wrong(f"heads has dtype {heads.dtype}; it must be bool or of whole numbers")
    if array.shape != shape:
        raise call.wrong(f"heads has shape {array.shape}; it must be {shape} as x has")
    if array.dtype.kind == "b":
        return array.view("uint8")
    return array if array.dtype.name == "uint8" else (array != 0).view("uint8")


def _single(call: Call, x: BorrowedArray, operator: str, *, exclusive: bool) -> Array:
    """The result of rows of one element."""
    bits, made = x.dtype == BFLOAT16, call.cp.empty(x.array.shape, x.array.dtype)
    if exclusive:
        neutral = PrefixOperator(operator).neutral(np.dtype("float32" if bits else x.dtype))
        made.fill(int(bfloat16_bits(neutral)) if bits else neutral)
    elif operator in _LOGICAL:
        values = bfloat16_values(x.array) if bits else x.array
        made[...] = (values != 0) * (int(bfloat16_bits(1)) if bits else 1)
    else:
        made[...] = x.array
    return made


def _name(dtype: Any) -> Any:  # noqa: ANN401 - NumPy's, PyTorch's, or a name
    """The name of a type, which can be compared; one that NumPy does not know is refused where it is used."""
    if dtype is None:
        return None
    text = str(dtype).removeprefix("torch.")
    try:
        return np.dtype(text if "torch." in str(dtype) else dtype).name
    except TypeError:
        return text
