"""Forms of a library's routines: what is called, and how its answers are brought into the kernel's layout.

Matrices are column-major, as the kernels have them.
"""

import ctypes
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
from linalg_sets import HostArrays, Sets

LOWER, UPPER = 0, 1  # cublasFillMode_t
PLAIN, TRANSPOSED = 0, 1  # cublasOperation_t
LEFT, RIGHT = 0, 1  # cublasSideMode_t
NON_UNIT = 0  # cublasDiagType_t
DEFAULT_MATH, PEDANTIC_MATH = 0, 2  # cublasMath_t; neither uses TF32
LETTERS = {"float32": "S", "float64": "D"}
REALS = {"float32": ctypes.c_float, "float64": ctypes.c_double}

Call = Callable[[int, int], None]
"""Puts the work on a set, given by its number, into a stream, given by its handle."""


class Library(Protocol):
    """cuBLAS and cuSOLVER as forms call them.

    Attributes:
        cp: CuPy.
    """

    cp: Any

    def blas(self, name: str, stream: int, *arguments: Any, math: int = DEFAULT_MATH) -> None:
        """A call of cuBLAS; the handle is not among the arguments."""

    def solver(self, name: str, stream: int, *arguments: Any) -> None:
        """A call of cuSOLVER, likewise."""


def _as_made(given: HostArrays, made: HostArrays) -> HostArrays:
    del given
    return made


@dataclass(frozen=True)
class Form:
    """One way to call a library.

    Attributes:
        name: the routine.
        settings: what sets this form apart from the others of the routine.
        call: of a set.
        converted: makes of inputs and outputs the outputs as the kernel has them.
        restore: brings the arrays of this form back to the inputs, after those of the sets; None for none.
        keep: arrays that calls have addresses of.
        turned: some of its matrices are transposed in memory.
    """

    name: str
    settings: str
    call: Call
    converted: Callable[[HostArrays, HostArrays], HostArrays] = _as_made
    restore: Callable[[], None] | None = None
    keep: Any = field(default=None, repr=False)
    turned: bool = False

    @property
    def key(self) -> str:
        """Routine and settings."""
        return f"{self.name}, {self.settings}" if self.settings else self.name


@dataclass(frozen=True)
class Factor:
    """A matrix of each problem.

    Attributes:
        arrays: of each set.
        leading: numbers from column to column.
        stride: from problem to problem.
        operation: PLAIN or TRANSPOSED.
    """

    arrays: Sequence[Any]
    leading: int
    stride: int
    operation: int = PLAIN


@dataclass(frozen=True)
class Product:
    """``made`` = op(``left``) op(``right``) of each problem.

    Attributes:
        dtype: of all.
        shape: rows and columns of ``made``, and how many numbers are added up.
        left: factor.
        right: same.
        made: what is written.
        batch: problems.
    """

    dtype: str
    shape: tuple[int, int, int]
    left: Factor
    right: Factor
    made: Factor
    batch: int


def of_sets(sets: Sets, name: str) -> list[Any]:
    """An array of each set."""
    return [arrays[name] for arrays in sets.arrays]


def addresses(cp: Any, arrays: Sequence[Any], offset: int = 0) -> list[Any]:
    """Of each array, the addresses of element ``offset`` of its problems, on the device."""
    found = []
    for array in arrays:
        batch = array.shape[0]
        step, first = array.nbytes // batch, array.data.ptr + offset * array.itemsize
        host = np.uint64(first) + np.uint64(step) * np.arange(batch, dtype=np.uint64)
        found.append(cp.asarray(host))
    return found


class Turned:
    """Transposed copies of an array of matrices, one for each set: the layout that suits a form better."""

    def __init__(self, cp: Any, sets: Sets, name: str) -> None:
        self._cp, self._sets, self._name = cp, sets, name
        self.arrays = [cp.empty(one.shape, one.dtype) for one in of_sets(sets, name)]
        self.restore()

    def restore(self) -> None:
        """Transpose what the sets have."""
        for turned, array in zip(self.arrays, of_sets(self._sets, self._name), strict=True):
            self._cp.copyto(turned, array.transpose(0, 2, 1))
