"""Arrays of problems: random values, rows on the host, chunks."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import NDArray

from tuner.model.elements import BFLOAT16, bfloat16_values
from tuner.model.plan import Buffer

Array: TypeAlias = Any
"""``numpy.ndarray`` or ``cupy.ndarray``: they share operators and methods, but no type."""

Namespace: TypeAlias = Any
"""The module ``numpy`` or ``cupy``."""

Generator: TypeAlias = Any
"""``xp.random.default_rng()``; only ``random``, ``standard_normal`` and ``integers`` are used."""

Arrays: TypeAlias = Mapping[str, Array]
"""Arrays by buffer name, in the order of the kernel file."""

CHUNK_ELEMENTS = 2**20
"""Elements handled at a time, so that float64 temporaries stay at some 8 MiB each."""


@dataclass(frozen=True)
class Draw:
    """How random values of one input are drawn; complex numbers by their real and imaginary parts.

    Attributes:
        kind: ``uniform`` in [low, low + width), ``normal`` for the normal distribution of mean ``low`` and
            standard deviation ``width``, ``whole`` for uniform whole numbers ``low`` ... ``low + width - 1``.
    """

    kind: Literal["uniform", "normal", "whole"] = "uniform"
    low: float = -1.0
    width: float = 2.0


def value_dtype(name: str) -> "np.dtype[Any]":
    """NumPy's type of the numbers in a buffer: ``float32`` for those of ``bfloat16``, which NumPy lacks."""
    return np.dtype(np.float32 if name == BFLOAT16 else name)


def values_of(arrays: Arrays, buffers: Sequence[Buffer]) -> dict[str, Array]:
    """Arrays as problems judge them: the bits of a ``bfloat16`` as numbers, all others as they are."""
    bits = {buffer.name for buffer in buffers if buffer.dtype == BFLOAT16}
    return {name: bfloat16_values(array) if name in bits else array for name, array in arrays.items()}


def sample_rows(batch: int, seed: int, count: int = 16) -> NDArray[np.int64]:
    """Sorted indices of the first, the last and some random problems of a batch, each once."""
    drawn = np.random.default_rng(seed).integers(0, batch, size=max(count - 2, 0))
    return np.unique(np.concatenate([[0, batch - 1], drawn])).astype(np.int64)


def take_rows(arrays: Arrays, rows: NDArray[np.int64], axes: int) -> dict[str, NDArray[Any]]:
    """Copy rows to the host; arrays with fewer axes than ``axes`` hold no problems and come whole."""
    return {
        name: np.stack([to_host(array[int(row)]) for row in rows]) if array.ndim == axes else to_host(array)
        for name, array in arrays.items()
    }


def to_host(array: Array) -> NDArray[Any]:
    """The array as NumPy array, copied from the device if it lies there."""
    return np.asarray(array.get() if hasattr(array, "get") else array)


def poison(array: Array) -> None:
    """Fill an array with one-bits: NaN for real and complex numbers, -1 for signed integers."""
    array.view(np.uint8).fill(0xFF)


def chunks(rows: int, elements_per_row: int, elements: int = CHUNK_ELEMENTS) -> Iterator[slice]:
    """Slices of whole rows that together cover all, each of about so many elements."""
    step = max(1, elements // max(1, elements_per_row))
    return (slice(start, min(start + step, rows)) for start in range(0, rows, step))


def fill(array: Array, rng: Generator, draw: Draw) -> Array:
    """Fill a new contiguous array piece by piece, and return it."""
    real = array.real.dtype
    flat = array.view(real).reshape(-1)
    drawn = np.dtype(np.float32 if real.kind == "f" and real != np.float64 else np.float64)
    for piece in chunks(flat.size, 1):
        count = piece.stop - piece.start
        if draw.kind == "normal":
            flat[piece] = draw.low + draw.width * rng.standard_normal(count, dtype=drawn)
            continue
        values = rng.random(count, dtype=drawn)
        values *= draw.width
        if draw.kind == "whole":
            values = np.floor(values)
        flat[piece] = values + draw.low
    return array
