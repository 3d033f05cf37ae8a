"""Formats of array elements on host and device, by the names that kernel files use."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from tuner.model.plan import Scalar

BFLOAT16 = "bfloat16"
"""The upper half of a float32, which NumPy lacks: arrays hold its 16 bits as ``uint16``."""


def element_dtype(name: str) -> "np.dtype[Any]":
    """NumPy's type of the elements of a buffer; ``uint16`` for the bits of a ``bfloat16``."""
    return np.dtype(np.uint16 if name == BFLOAT16 else name)


def bfloat16_bits(values: Any) -> Any:  # noqa: ANN401 - a number or an array
    """Numbers rounded to the nearest ``bfloat16`` (ties to even), as their 16 bits in ``uint16``."""
    wide = np.asarray(values, np.float32).view(np.uint32)
    rounded = wide + np.uint32(0x7FFF) + ((wide >> np.uint32(16)) & np.uint32(1))
    quiet = (wide >> np.uint32(16)) | np.uint32(0x40)  # rounding could make an infinity of a NaN
    bits = np.where(np.isnan(values), quiet, rounded >> np.uint32(16))
    return bits.astype(np.uint16)


def bfloat16_values(bits: Any) -> Any:  # noqa: ANN401 - an array of whatever library
    """The ``float32`` numbers that 16 bits of ``bfloat16`` stand for; exact."""
    return (bits.astype(np.uint32) << np.uint32(16)).view(np.float32)


def scalar_value(scalar: Scalar) -> "np.generic[Any]":
    """Return the value that is passed to a kernel for a scalar."""
    if scalar.dtype == BFLOAT16:
        return np.uint16(bfloat16_bits(scalar.value))
    value: np.generic[Any] = element_dtype(scalar.dtype).type(scalar.value)
    return value


def struct_bytes(scalars: Sequence[Scalar]) -> bytes:
    """A struct of these fields as CUDA lays it out: each at a multiple of its size, padded to the largest.

    NumPy aligns complex numbers to their parts; ``float2`` and ``cuComplex`` are aligned to both.
    """
    struct = bytearray()
    values = [scalar_value(scalar) for scalar in scalars]
    for value in values:
        struct += bytes(-len(struct) % value.itemsize) + value.tobytes()
    struct += bytes(-len(struct) % max(value.itemsize for value in values))
    return bytes(struct)
