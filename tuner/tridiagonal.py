"""Tridiagonal systems on the GPU by the catalogue's tuned kernels, which do not pivot.

Arrays are those that ``tuner.apply`` takes, of any strides and batch; results are new arrays of the caller's
library, in its current stream. Configurations are chosen as ``tuner.apply`` chooses them. See
docs/howto/arrays.md for what errors to expect of which systems.
"""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from tuner.application.borrowing import BorrowedArray
from tuner.application.functions import Call, Straight, flag, perform, refuse_errors
from tuner.application.keys import ALIGNED, Array
from tuner.problems.tridiagonal import defects

__all__ = ["solve"]

ALLOWED = 100  # units of roundoff: a backward error that no stable elimination reaches
_SIDES = 4  # right sides that a kernel takes at a time
_MOST_SIDES = (
    16  # that are few launches; of more each is a system of its own, whose matrix the cache may hold
)
_PERIODIC = 3  # unknowns at least of the periodic kernels


def solve(
    a: Any,  # noqa: ANN401 - an array on the GPU
    b: Any,  # noqa: ANN401 - same
    c: Any,  # noqa: ANN401 - same
    d: Any,  # noqa: ANN401 - same
    *,
    periodic: bool = False,
    check: bool | str = False,
) -> Any:  # noqa: ANN401 - same
    """Solutions x of ``a[i] x[i-1] + b[i] x[i] + c[i] x[i+1] = d[i]``, without pivoting.

    Args:
        a: below the diagonal, (..., N); ``a[0]`` counts as 0.
        b: the diagonal, (..., N).
        c: above the diagonal, (..., N); ``c[N-1]`` counts as 0.
        d: right sides, (..., N). Axes before the last are broadcast. Where matrices have an axis of 1 before
            the last, or lack it, and d has 2 to 16 there, a matrix is read and eliminated once for up to 4
            right sides.
        periodic: whether the ends meet: ``a[0]`` is then the coefficient of ``x[N-1]``, and ``c[N-1]`` that
            of ``x[0]``.
        check: whether to compute residuals on the GPU and wait for them; True and ``residual`` are the same.
            11 operations and, in CuPy's array operations, about 35 reads and writes for each unknown: 7 times
            the memory traffic of the solution.

    Returns:
        float32, float64 or complex64, by the type of the arrays together; of the shape that they have
        broadcast.

    Raises:
        LinAlgError: with ``check``, a backward error ``max |A x - d| / (max |A| max |x|)`` exceeds 100 units
            of roundoff, or is NaN: the system needs pivoting, or is singular. The message names the first.
        InputError: an argument cannot be used; the message names it and what would be right.
        DeviceError: the GPU has no room.
    """
    return perform("tuner.tridiagonal.solve", _solve, {"a": a, "b": b, "c": c, "d": d}, periodic, check)


def _solve(  # noqa: PLR0917 - those of the function
    call: Call,
    a: BorrowedArray,
    b: BorrowedArray,
    c: BorrowedArray,
    d: BorrowedArray,
    periodic: object,
    check: object,
) -> Straight | Array:
    periodic = flag(call, "periodic", periodic)
    checked = (isinstance(check, str) and check == "residual") or flag(call, "check", check)
    given = {"a": a, "b": b, "c": c, "d": d}
    kind, lead, n = _forms(call, given)
    arrays = [one.array.astype(kind, copy=False) for one in given.values()]
    if 0 in lead:
        return call.cp.empty((*lead, n), kind)
    if periodic and n < _PERIODIC:  # both neighbours of an unknown are one, or itself
        joined = arrays[0] + arrays[2]
        arrays[0] = arrays[2] = joined
        if n == 1:
            arrays[1] = arrays[1] + joined
        periodic = False
    result: Straight | Array
    if n == 1:
        result = call.cp.ascontiguousarray(call.cp.broadcast_to(arrays[3] / arrays[1], (*lead, n)))
    elif not periodic and _shares(arrays, lead):
        result = _several(call, arrays, lead)
    else:
        name = "tridiag-periodic" if periodic else "tridiag-wm"
        wide = [call.cp.broadcast_to(one, (*lead, n)) for one in arrays]
        rows = [call.rows(one, apart=True) for one in wide]
        pairs = zip(rows, wide, given.values(), strict=True)
        if not checked and all(call.same(row, whole, one) for row, whole, one in pairs):
            return Straight(name, tuple(one.array for one in given.values()))
        result = Straight(name, tuple(rows)).run().reshape(*lead, n)
    if checked:
        _check(call, arrays, result, periodic=periodic)
    return result


def _forms(call: Call, given: dict[str, BorrowedArray]) -> tuple[str, tuple[int, ...], int]:
    """The type that is computed in, the axes before the last, and the number of unknowns.

    Raises:
        InputError: types or shapes cannot be used.
    """
    known = {"float16", "float32", "float64", "complex64"}
    for name, one in given.items():
        if one.dtype not in known and one.dtype != "bool" and "int" not in one.dtype:
            raise call.wrong(f"{name} has dtype {one.dtype}; it must be float32, float64 or complex64")
        if not one.array.ndim or not one.array.shape[-1]:
            raise call.wrong(f"{name} has shape {one.array.shape}; it must be (..., N)")
    kind = np.result_type(*(one.array.dtype for one in given.values()), np.float32).name
    if kind not in known:
        shown = ", ".join(f"{name} {one.dtype}" for name, one in given.items())
        raise call.wrong(f"dtypes are {shown}, together {kind}; it must be float32, float64 or complex64")
    shapes = {name: tuple(one.array.shape) for name, one in given.items()}
    words = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
    n = shapes["b"][-1]
    if any(shape[-1] != n for shape in shapes.values()):
        raise call.wrong(f"the last axes do not go together: {words}")
    try:
        return kind, tuple(np.broadcast_shapes(*(shape[:-1] for shape in shapes.values()))), n
    except ValueError as error:
        raise call.wrong(f"the axes before the last do not go together: {words}") from error


def _shares(arrays: Sequence[Array], lead: Sequence[int]) -> bool:
    """Return True if a few right sides, along the axis before the last, have one matrix."""
    own = [one.shape[-2] if one.ndim > 1 else 1 for one in arrays[:3]]
    return bool(lead) and 1 < lead[-1] <= _MOST_SIDES and set(own) == {1}


def _several(call: Call, arrays: Sequence[Array], lead: Sequence[int]) -> Array:
    """Solutions where systems share matrices: the right sides of one follow each other."""
    cp, n, count = call.cp, arrays[3].shape[-1], lead[-1]
    single = [one[..., 0, :] if one.ndim > 1 else one for one in arrays[:3]]
    matrices = [call.rows(cp.broadcast_to(one, (*lead[:-1], n)), apart=True) for one in single]
    sides = cp.broadcast_to(arrays[3], (*lead, n)).reshape(-1, count * n)
    result = cp.empty(sides.shape, sides.dtype)
    begin = 0
    for part in np.array_split(np.arange(count), -(-count // _SIDES)):
        end = begin + len(part) * n
        right = call.rows(sides[:, begin:end], apart=True)
        run = Straight("tridiag-several", (*matrices, right), {"K": len(part)})
        target = result[:, begin:end]
        if target.data.ptr & ALIGNED:
            target[...] = run.run()
        else:
            replace(run, out=target).run()
        begin = end
    return result.reshape(*lead, n)


def _check(call: Call, arrays: Sequence[Array], x: Array, *, periodic: bool) -> None:
    """Refuse solutions whose residuals are too large.

    Raises:
        LinAlgError: one is.
    """
    own = np.broadcast_shapes(*(one.shape for one in arrays[:3]))
    a, b, c = (call.cp.broadcast_to(one, own) for one in arrays[:3])
    defect, size = defects(a, b, c, arrays[3], x, periodic=periodic)
    limit = ALLOWED * float(np.finfo(x.dtype).eps) / 2
    hint = ": the kernels do not pivot; cupyx.cusparse.gtsv2 does"
    refuse_errors(call, defect, size, limit, f"of {x.shape[-1]} unknowns", hint)
