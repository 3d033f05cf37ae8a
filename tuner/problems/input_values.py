"""Values of inputs that a kernel file states: by a generator, or from a file of NumPy.

Generators work along the last axis, each row by itself. Values are made on the host with NumPy; those that a
device can make by itself have a ``Draw``.
"""

import math
from typing import Any

import numpy as np
from numpy.typing import NDArray

from tuner.config.data_files import array_of
from tuner.model.elements import BFLOAT16, bfloat16_bits
from tuner.model.inputs import InputSpec
from tuner.model.plan import Buffer
from tuner.problems.arrays import CHUNK_ELEMENTS, Draw, value_dtype

_EXACT = 2**53  # whole numbers up to here are exact in float64, as a device draws them
_SPD_ROWS = 256  # changed at a time


def stated_draw(buffer: Buffer) -> Draw | None:
    """How a device draws the values that are stated for a buffer; None where the host must make them."""
    spec = buffer.input
    if spec is None:
        return None
    is_complex = buffer.dtype.startswith("complex")
    if spec.kind == "uniform":
        low, high = spec.numbers
        return Draw("uniform", float(low), float(high) - float(low))
    if spec.kind == "normal":
        return Draw("normal", float(spec.numbers[0]), float(spec.numbers[1]))
    if spec.kind == "constant" and not is_complex and abs(spec.numbers[0]) <= _EXACT:
        return Draw("uniform", float(spec.numbers[0]), 0.0)
    if spec.kind == "integers" and not is_complex and max(map(abs, spec.numbers)) <= _EXACT:
        low, high = spec.numbers
        return Draw("whole", float(low), float(high - low))
    return None


def stated_values(buffer: Buffer, rng: np.random.Generator) -> NDArray[Any]:
    """The values that are stated for a buffer, in its type and shape; of ``bfloat16`` their bits.

    Args:
        buffer: with an ``input``.
        rng: where random values come from.

    Raises:
        InputError: a file cannot be read, or has changed since it was looked at.
        ValueError: nothing is stated.
    """
    if buffer.input is None:
        raise ValueError(f"no input is stated for {buffer.name}")
    values = _made(buffer.input, value_dtype(buffer.dtype), buffer.shape, rng)
    if buffer.dtype == BFLOAT16:
        return values if values.dtype == np.uint16 else bfloat16_bits(values)
    return values.astype(buffer.dtype, copy=False)


def _made(
    spec: InputSpec, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    if spec.file is not None:
        return array_of(spec.file)
    if spec.inner is not None:
        return np.sort(_made(spec.inner, dtype, shape, rng), axis=-1)
    if spec.kind in _OF_REALS:
        return _OF_REALS[spec.kind](spec, dtype, shape, rng)
    if spec.kind == "constant":
        return np.full(shape, spec.numbers[0], dtype)
    if spec.kind == "integers":
        low, high = map(int, spec.numbers)
        return rng.integers(low, high, size=shape, dtype=np.int64 if high <= 2**63 else np.uint64)
    rows, length = math.prod(shape[:-1]), shape[-1]
    made = np.empty((rows, length), np.int64)
    for row in made:
        row[...] = _row(spec, length, rng)
    return made.reshape(shape)


def _row(spec: InputSpec, length: int, rng: np.random.Generator) -> NDArray[np.int64]:
    """One row of whole numbers."""
    if spec.kind == "permutation":
        return rng.permutation(length)
    if spec.kind == "unique":
        low, high = map(int, spec.numbers)
        gaps = rng.integers(0, high - low - length + 1, size=length)
        return low + np.sort(gaps) + np.arange(length)
    if spec.kind == "csr_offsets":
        total = int(spec.numbers[0])
        if length == 1:
            return np.array([total])
        inner = np.sort(rng.integers(0, total + 1, size=length - 2))
        return np.concatenate([[0], inner, [total]])
    return np.arange(length)


def _dominant(
    spec: InputSpec, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    """Square matrices whose diagonal is larger than the rest of its row and of its column."""
    values = _reals(spec, dtype, shape, rng)
    largest = max(map(abs, spec.numbers)) * (math.sqrt(2) if values.dtype.kind == "c" else 1.0)
    diagonal = np.einsum("...ii->...i", values)  # a view
    diagonal += (values.shape[-1] + 1) * largest
    return values


def _definite(
    spec: InputSpec, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    """Square matrices whose symmetric part is positive definite, and whose diagonal hides nothing else.

    The symmetric part of n × n independent values of mean 0 and size at most s has no eigenvalue below about
    -0.82 s √n, and none below -n s; a mean below 0 takes n of it more.
    """
    values = _reals(spec, dtype, shape, rng)
    n = values.shape[-1]
    largest = max(map(abs, spec.numbers)) * (math.sqrt(2) if values.dtype.kind == "c" else 1.0)
    diagonal = np.einsum("...ii->...i", values)  # a view
    diagonal += 2 * largest * math.sqrt(n) + n * max(0.0, -float(sum(spec.numbers)) / 2)
    return values


def _spd(
    spec: InputSpec, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    """Symmetric positive definite matrices of eigenvalues 1 to 1 / condition, evenly spread on a log scale.

    Each is the diagonal matrix of its eigenvalues between two random reflections.
    """
    n = shape[-1]
    eigenvalues = float(spec.numbers[0]) ** -np.linspace(0, 1, n)
    made = np.empty(shape, dtype)
    flat = made.reshape(-1, n, n)
    step = max(1, CHUNK_ELEMENTS // (n * n))
    for start in range(0, len(flat), step):
        piece = flat[start : start + step]
        matrices = np.zeros(piece.shape)
        np.einsum("bii->bi", matrices)[...] = eigenvalues
        for _ in range(2):
            normal = rng.standard_normal((len(piece), n))
            normal /= np.linalg.norm(normal, axis=1, keepdims=True)
            image = np.einsum("bij,bj->bi", matrices, normal)
            image -= np.einsum("bi,bi->b", image, normal)[:, None] * normal
            for first in range(0, n, _SPD_ROWS):  # of large matrices, so that temporaries stay small
                rows = slice(first, first + _SPD_ROWS)
                change = 2 * image[:, rows, None] * normal[:, None, :]
                change += 2 * image[:, None, :] * normal[:, rows, None]
                matrices[:, rows] -= change
        piece[...] = matrices
    return made


def _reals(
    spec: InputSpec, dtype: np.dtype[Any], shape: tuple[int, ...], rng: np.random.Generator
) -> NDArray[Any]:
    """Uniform or normal values, piece by piece; of complex numbers both parts."""
    made = np.empty(shape, dtype)
    flat = made.view(made.real.dtype).reshape(-1)
    low, second = map(float, spec.numbers)
    for start in range(0, flat.size, CHUNK_ELEMENTS):
        piece = flat[start : start + CHUNK_ELEMENTS]
        if spec.kind == "normal":
            piece[...] = low + second * rng.standard_normal(piece.size)
        else:
            piece[...] = low + (second - low) * rng.random(piece.size)
    return made


_OF_REALS = {"uniform": _reals, "normal": _reals, "dominant": _dominant, "definite": _definite, "spd": _spd}
