"""Fourier transforms on the GPU by the catalogue's tuned kernels, with the names of ``cupyx.scipy.fft``.

Arrays are those that ``tuner.apply`` takes, of any axes, strides and batch; results are new arrays of the
caller's library, in its current stream. float32, float16 and complex64 give complex64 or float32, all else
complex128 or float64. Configurations are chosen as ``tuner.apply`` chooses them. See docs/howto/arrays.md.
"""

import math
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from tuner.application.borrowing import BorrowedArray, is_waited_for
from tuner.application.functions import Call, Straight, flag, perform
from tuner.application.keys import ALIGNED, Array

__all__ = ["fft", "fft2", "ifft", "ifft2", "irfft", "rfft"]

_HALF = ("float16", "float32", "complex64")  # those of which results have 4 bytes a part
_WIDE = (
    *("float64", "complex128", "bool"),
    *(f"{sign}int{bits}" for sign in ("", "u") for bits in (8, 16, 32, 64)),
)
_LEAST_REAL = 3  # numbers of a row that the kernels of real rows take
_LONGEST = 2**24  # numbers of a row that kernels take
_MOST = 8192  # numbers of a row that a block holds: such kernels take gaps between rows, and work in place


def fft(
    x: Any,  # noqa: ANN401 - an array on the GPU
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> Any:  # noqa: ANN401 - same
    """Transform of complex or real numbers along an axis.

    Real rows are transformed as such, and the other half of the result is filled with the conjugates.

    Args:
        x: of any shape with an axis at least.
        n: length of the axis, up to 2^24; x is cut, or filled up with zeros. None for its own.
        axis: that is transformed.
        norm: ``backward`` or None, ``ortho``, ``forward``: whether this transform is unscaled, multiplied by
            the root of 1/n, or by 1/n. All but the first pass over the result once more.
        overwrite_x: whether the memory of x may become that of the result: it does for complex rows of up to
            8192 numbers, of CuPy and PyTorch, that need no copy and share none.

    Returns:
        complex64 or complex128, of the shape of x but for the axis.

    Raises:
        InputError: an argument cannot be used; the message names it and what would be right.
        DeviceError: the GPU has no room.
    """
    return perform("tuner.fft.fft", partial(_whole, inverse=False), {"x": x}, n, axis, norm, overwrite_x)


def ifft(
    x: Any,  # noqa: ANN401 - an array on the GPU
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> Any:  # noqa: ANN401 - same
    """The inverse of ``fft``, with its arguments; multiplied by 1/n with the norm ``backward``."""
    return perform("tuner.fft.ifft", partial(_whole, inverse=True), {"x": x}, n, axis, norm, overwrite_x)


def rfft(
    x: Any,  # noqa: ANN401 - an array on the GPU
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> Any:  # noqa: ANN401 - same
    """Transform of real numbers along an axis: the n // 2 + 1 numbers that are no conjugates of others.

    Arguments and errors are those of ``fft``; ``overwrite_x`` changes nothing.
    """
    return perform("tuner.fft.rfft", _real, {"x": x}, n, axis, norm, overwrite_x)


def irfft(
    x: Any,  # noqa: ANN401 - an array on the GPU
    n: int | None = None,
    axis: int = -1,
    norm: str | None = None,
    overwrite_x: bool = False,
) -> Any:  # noqa: ANN401 - same
    """The inverse of ``rfft``: n real numbers from n // 2 + 1 complex ones.

    Args:
        x: as with ``fft``.
        n: length of the result; None for 2 (m - 1), of m numbers along the axis.
        axis: that is transformed.
        norm: as with ``ifft``.
        overwrite_x: changes nothing.

    Returns:
        float32 or float64.

    Raises:
        InputError: an argument cannot be used; the message names it and what would be right.
        DeviceError: the GPU has no room.
    """
    return perform("tuner.fft.irfft", _real_back, {"x": x}, n, axis, norm, overwrite_x)


def fft2(
    x: Any,  # noqa: ANN401 - an array on the GPU
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
) -> Any:  # noqa: ANN401 - same
    """Transform of complex or real planes.

    Args:
        x: of any shape with two axes at least.
        s: lengths of the axes; None for their own.
        axes: that are transformed.
        norm: as with ``fft``, of the numbers of a plane.
        overwrite_x: changes nothing.

    Returns:
        complex64 or complex128.

    Raises:
        InputError: an argument cannot be used; the message names it and what would be right.
        DeviceError: the GPU has no room.
    """
    lengths, places = _listed(s), _listed(axes)
    return perform(
        "tuner.fft.fft2", partial(_planes, inverse=False), {"x": x}, lengths, places, norm, overwrite_x
    )


def ifft2(
    x: Any,  # noqa: ANN401 - an array on the GPU
    s: Sequence[int] | None = None,
    axes: Sequence[int] = (-2, -1),
    norm: str | None = None,
    overwrite_x: bool = False,
) -> Any:  # noqa: ANN401 - same
    """The inverse of ``fft2``, with its arguments; multiplied by 1 / (m n) with the norm ``backward``."""
    lengths, places = _listed(s), _listed(axes)
    return perform(
        "tuner.fft.ifft2", partial(_planes, inverse=True), {"x": x}, lengths, places, norm, overwrite_x
    )


# --- What a call does.


def _whole(  # noqa: PLR0917 - those of the function
    call: Call, x: BorrowedArray, n: object, axis: object, norm: object, overwrite: object, *, inverse: bool
) -> Straight | Array:
    place = call.axis("axis", axis, _axes(call, x, 1))
    length = _length(call, "n", n, x.array.shape[place])
    array, kind = _resized(call, x.array, place, length), _kind(call, x)
    scale, overwrite = _scale(call, norm, length)[inverse], flag(call, "overwrite_x", overwrite)
    lasting = is_waited_for(call.cp, x.original)  # JAX's arrays never change
    if not array.size:
        return call.cp.empty(array.shape, kind)
    moved = call.cp.moveaxis(array, place, -1)
    if not inverse and length >= _LEAST_REAL and array.dtype.kind != "c":
        return _placed(call, _mirrored(call, moved, kind, length), place, scale)
    rows = call.rows(moved.astype(kind, copy=False), apart=length <= _MOST)
    own = length > 1 and call.same(rows, moved, x)
    alone = len(rows) == 1 or rows.strides[0] >= length * rows.itemsize  # no number is in two rows
    out = rows if own and overwrite and alone and not lasting and length <= _MOST else None
    if own and scale == 1:
        return Straight("fft", (x.array,), _direction(inverse=inverse), None if out is None else x.array)
    found = _run(rows, inverse=inverse, out=out)
    if out is not None:
        _scaled(found, scale)
        return x.array
    return _placed(call, found.reshape(moved.shape), place, scale)


def _real(  # noqa: PLR0917 - those of the function
    call: Call, x: BorrowedArray, n: object, axis: object, norm: object, overwrite: object
) -> Straight | Array:
    place = call.axis("axis", axis, _axes(call, x, 1))
    length = _length(call, "n", n, x.array.shape[place])
    array, kind = _resized(call, x.array, place, length), _kind(call, x)
    (scale, _), _ = _scale(call, norm, length), flag(call, "overwrite_x", overwrite)
    if array.dtype.kind == "c":
        raise call.wrong(f"x has dtype {x.dtype}; it must be of real numbers")
    moved = call.cp.moveaxis(array, place, -1)
    shape = (*moved.shape[:-1], length // 2 + 1)
    if not array.size:
        return call.cp.moveaxis(call.cp.empty(shape, kind), -1, place)
    if length < _LEAST_REAL:
        found = _run(call.rows(moved.astype(kind), apart=True), inverse=False)[:, : shape[-1]]
        return _placed(call, found.copy().reshape(shape), place, scale)
    rows = _real_rows(call, moved, kind)
    if scale == 1 and call.same(rows, moved, x):
        return Straight("fft-real", (x.array,))
    return _placed(call, Straight("fft-real", (rows,)).run().reshape(shape), place, scale)


def _real_back(  # noqa: PLR0917 - those of the function
    call: Call, x: BorrowedArray, n: object, axis: object, norm: object, overwrite: object
) -> Straight | Array:
    place = call.axis("axis", axis, _axes(call, x, 1))
    length = _length(call, "n", n, 2 * (x.array.shape[place] - 1))
    array, kind = _resized(call, x.array, place, length // 2 + 1), _kind(call, x)
    (_, scale), _ = _scale(call, norm, length), flag(call, "overwrite_x", overwrite)
    moved = call.cp.moveaxis(array, place, -1)
    real = "float32" if kind == "complex64" else "float64"
    shape = (*moved.shape[:-1], length)
    if not array.size:
        return call.cp.moveaxis(call.cp.empty(shape, real), -1, place)
    if length < _LEAST_REAL:  # one number, or two that are real
        rows = call.rows(moved.real.astype(kind)[..., :length], apart=True)
        return _placed(call, _run(rows, inverse=True).real.copy().reshape(shape), place, scale)
    rows = call.rows(moved.astype(kind, copy=False), apart=True)
    sizes: dict[str, int | str] = {"N": length, "direction": "inverse"}
    if scale == 1 and call.same(rows, moved, x):
        return Straight("fft-real", (x.array,), sizes)
    return _placed(call, Straight("fft-real", (rows,), sizes).run().reshape(shape), place, scale)


def _planes(  # noqa: PLR0917 - those of the function
    call: Call, x: BorrowedArray, s: object, axes: object, norm: object, overwrite: object, *, inverse: bool
) -> Straight | Array:
    ndim, cp = _axes(call, x, 2), call.cp
    if not isinstance(axes, tuple) or len(axes) != 2:  # noqa: PLR2004 - of a plane
        raise call.wrong(f"axes is {axes!r}; it must be two axes")
    places = [call.axis("axes", axis, ndim) for axis in axes]
    if places[0] == places[1]:
        raise call.wrong(f"axes is {axes!r}; the two must differ")
    if s is not None and (not isinstance(s, tuple) or len(s) != 2):  # noqa: PLR2004 - same
        raise call.wrong(f"s is {s!r}; it must be two lengths")
    flag(call, "overwrite_x", overwrite)
    array, kind = x.array, _kind(call, x)
    for place, length in zip(places, s or (None, None), strict=True):
        array = _resized(call, array, place, _length(call, "s", length, array.shape[place]))
    m, n = (array.shape[place] for place in places)
    scale = _scale(call, norm, m * n)[inverse]
    if not array.size:
        return cp.empty(array.shape, kind)
    moved = cp.moveaxis(array.astype(kind, copy=False), places, (-2, -1))
    if 1 < m <= _MOST and 1 < n <= _MOST:
        planes = moved if moved.ndim == 3 else moved.reshape(-1, m, n)  # noqa: PLR2004 - a batch
        planes = planes if planes.flags.c_contiguous and not planes.data.ptr & ALIGNED else planes.copy()
        run = Straight("fft-2d", (planes,), _direction(inverse=inverse))
        if scale == 1 and call.same(planes, moved, x, 3):
            return replace(run, arrays=(x.array,))
        found = run.run().reshape(moved.shape)
    else:
        found = moved
        for place in (-1, -2):
            turned = cp.moveaxis(found, place, -1)
            rows = call.rows(turned, apart=turned.shape[-1] <= _MOST)
            made = _run(rows, inverse=inverse)
            found = cp.moveaxis(made.reshape(turned.shape), -1, place)
    return _scaled(cp.moveaxis(found, (-2, -1), places), scale)


def _mirrored(call: Call, moved: Array, kind: str, n: int) -> Array:
    """The whole transform of real rows, (..., n): the kernel writes the first half of each."""
    rows, half = _real_rows(call, moved, kind), n // 2 + 1
    made = call.cp.empty((len(rows), n), kind)
    Straight("fft-real", (rows,), {}, made[:, :half]).run()
    call.cp.conjugate(made[:, n - half : 0 : -1], out=made[:, half:])
    return made.reshape(moved.shape)


def _real_rows(call: Call, moved: Array, kind: str) -> Array:
    """Real rows as their kernels take them: pairs of numbers of even rows are read as complex numbers."""
    real = moved.astype("float32" if kind == "complex64" else "float64", copy=False)
    rows = call.rows(real, apart=True)
    odd = rows.strides[0] // rows.itemsize % 2 and rows.shape[-1] % 2 == 0 and len(rows) > 1
    return rows.copy() if odd else rows


def _direction(*, inverse: bool) -> dict[str, int | str]:
    return {"direction": "inverse"} if inverse else {}


def _run(rows: Array, *, inverse: bool, out: Array | None = None) -> Array:
    """The result of complex rows; one number is its own transform."""
    if rows.shape[-1] == 1:
        return rows.copy()
    return Straight("fft", (rows,), _direction(inverse=inverse), out).run()


def _placed(call: Call, found: Array, place: int, scale: float) -> Array:
    """A result of shape (..., n) with its axis where the caller has it."""
    return call.cp.moveaxis(_scaled(found, scale), -1, place)


def _scaled(found: Array, scale: float) -> Array:
    if scale != 1:
        found *= found.real.dtype.type(scale)
    return found


# --- Arguments.


def _axes(call: Call, x: BorrowedArray, least: int) -> int:
    ndim = int(x.array.ndim)
    if ndim < least:
        raise call.wrong(
            f"x has shape {x.array.shape}; it must have {'an axis' if least == 1 else 'two axes'}"
        )
    return ndim


def _kind(call: Call, x: BorrowedArray) -> str:
    """The type of the complex numbers of a transform."""
    if x.dtype in _HALF:
        return "complex64"
    if x.dtype in _WIDE:
        return "complex128"
    raise call.wrong(f"x has dtype {x.dtype}, which no kernel transforms; take {', '.join(_HALF)} or float64")


def _length(call: Call, name: str, given: object, own: int) -> int:
    n = own if given is None else given
    if isinstance(n, (int, np.integer)) and not isinstance(n, bool) and 1 <= n <= _LONGEST:
        return int(n)
    raise call.wrong(f"{name} is {n!r}; it must be a whole number from 1 to {_LONGEST}")


def _resized(call: Call, array: Array, place: int, n: int) -> Array:
    """An array cut to n numbers along an axis, or filled up with zeros."""
    before = (slice(None),) * place
    if array.shape[place] >= n:
        return array if array.shape[place] == n else array[(*before, slice(n))]
    made = call.cp.zeros((*array.shape[:place], n, *array.shape[place + 1 :]), array.dtype)
    made[(*before, slice(array.shape[place]))] = array
    return made


def _scale(call: Call, norm: object, n: int) -> tuple[float, float]:
    """Factors of results, there and back: kernels divide by n on the way back."""
    back = {"backward": 1.0, "ortho": math.sqrt(n), "forward": float(n)}
    name = "backward" if norm is None else norm
    if isinstance(name, str) and name in back:
        return 1 / back[name], back[name]
    raise call.wrong(f"norm is {norm!r}; it must be 'backward', 'ortho' or 'forward'")


def _listed(values: Any) -> Any:  # noqa: ANN401 - whatever callers have
    """A sequence as a tuple, which can be compared with those of earlier calls."""
    return tuple(values) if isinstance(values, (list, tuple)) else values
