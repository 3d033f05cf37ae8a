"""What cuBLAS and cuFFT compute for stages of libraries, by NumPy; host stages are run as on a GPU."""

from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import numpy as np
import numpy.typing as npt
from fake_cupy import FakeCupy

from tuner.devices.cuda.launches import CpuThreads, HostLapack
from tuner.model.plan import LibraryCall

Array = npt.NDArray[Any]
_CP: Any = FakeCupy({})
_ANY_NUMBER = SimpleNamespace(num_threads=10**4, set_num_threads=lambda _: None)  # of threads, unchanged
_LAPACK = HostLapack(_CP, CpuThreads(10**4, lambda: [_ANY_NUMBER]))


@np.errstate(all="ignore")  # a GPU says nothing of overflows
def run(call: LibraryCall, arrays: Mapping[str, Array]) -> None:
    """Runs a call on ``arrays`` in place."""
    if call.on_host:
        addresses = {name: _elements(call, arrays, name).ctypes.data for name, _ in call.operands}
        _LAPACK.action(call, addresses)(_CP.current_stream())
    elif call.routine == "fft":
        given, made = (_elements(call, arrays, letter) for letter in ("a", "c"))
        rows = given[: call.m * call.n].reshape(call.m, call.n)
        result = np.fft.ifft(rows) * call.n if call.inverse else np.fft.fft(rows)
        made[: call.m * call.n] = result.reshape(-1)
    elif call.routine == "gemm":
        a, b = (_matrix(call, arrays, *one) for one in (("a", call.m, call.k), ("b", call.k, call.n)))
        c = _matrix(call, arrays, "c", call.m, call.n)
        c[...] = call.alpha * (a @ b) + _scaled(call, c)
    elif call.routine == "syrk":
        a, c = _matrix(call, arrays, "a", call.n, call.k), _matrix(call, arrays, "c", call.n, call.n)
        chosen = np.tril(np.ones(c.shape, bool)) if call.fill == "lower" else np.triu(np.ones(c.shape, bool))
        c[chosen] = (call.alpha * (a @ a.T) + _scaled(call, c))[chosen]
    else:
        _solve(call, arrays)


def _solve(call: LibraryCall, arrays: Mapping[str, Array]) -> None:
    from scipy.linalg import solve_triangular  # noqa: PLC0415 - takes long to import

    order = call.m if call.side == "left" else call.n
    operand = call.operand("a")
    stored = _stored(arrays[operand.buffer], operand.offset_elements, operand.leading, order, order)
    given = _matrix(call, arrays, "b", call.m, call.n)
    b = given if call.side == "left" else given.T
    if not call.unit and not stored.diagonal().all():  # BLAS looks at no pivot
        b[...] = np.nan
        return
    way = {"lower": call.fill == "lower", "unit_diagonal": call.unit, "check_finite": False}
    found = solve_triangular(stored, b, trans=operand.transposed != (call.side == "right"), **way)
    b[...] = call.alpha * found


def _scaled(call: LibraryCall, c: Array) -> Array | float:
    return call.beta * c if call.beta else 0.0


def _elements(call: LibraryCall, arrays: Mapping[str, Array], letter: str) -> Array:
    operand = call.operand(letter)
    return arrays[operand.buffer].reshape(-1)[operand.offset_elements :]


def _matrix(call: LibraryCall, arrays: Mapping[str, Array], letter: str, rows: int, columns: int) -> Array:
    """An operand as the routine sees it, a view of the array."""
    operand = call.operand(letter)
    extent = (columns, rows) if operand.transposed else (rows, columns)
    stored = _stored(arrays[operand.buffer], operand.offset_elements, operand.leading, *extent)
    return stored.T if operand.transposed else stored


def _stored(array: Array, offset: int, leading: int, rows: int, columns: int) -> Array:
    """Columns one after another, ``leading`` elements apart."""
    flat = array.reshape(-1)
    assert offset + (columns - 1) * leading + rows <= flat.size
    steps = (flat.itemsize, leading * flat.itemsize)
    return np.lib.stride_tricks.as_strided(flat[offset:], (rows, columns), steps)
