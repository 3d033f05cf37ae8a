"""Right answers of the kernels in ``examples``, in float64 and by the plainest way NumPy has."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

Arrays = Mapping[str, NDArray[Any]]
Answers = dict[str, NDArray[Any]]


def reduction(inputs: Arrays) -> Answers:
    """Sum of squares of every row."""
    return {"sum": (inputs["x"].astype(float) ** 2).sum(axis=1, keepdims=True)}


def transpose(inputs: Arrays) -> Answers:
    """Rows become columns."""
    return {"y": inputs["x"].swapaxes(1, 2)}


def stencil(inputs: Arrays) -> Answers:
    """A star of radius 2; what lies outside is zero."""
    x = inputs["x"].astype(float)
    padded = np.pad(x, ((0, 0), (2, 2), (2, 2)))
    rows, columns = x.shape[1:]

    def moved(down: int, across: int) -> NDArray[Any]:
        return padded[:, 2 + down : 2 + down + rows, 2 + across : 2 + across + columns]

    answer = 0.5 * x
    for distance, weight in ((1, 0.1), (2, 0.025)):
        answer += weight * sum(moved(sign * distance, 0) + moved(0, sign * distance) for sign in (-1, 1))
    return {"y": answer}


def histogram(inputs: Arrays) -> Answers:
    """Counts over 256 bins of [-1, 1)."""
    bins = ((inputs["x"] + np.float32(1)) * np.float32(128)).astype(int).clip(0, 255)
    return {"histogram": np.array([np.bincount(row, minlength=256) for row in bins])}


def nbody(inputs: Arrays) -> Answers:
    """Accelerations by all pairs; the magnitude of the fourth number is the mass."""
    answers = []
    for body in inputs["body"].astype(float):
        away = body[None, :, :3] - body[:, None, :3]
        strength = abs(body[:, 3]) * ((away**2).sum(axis=2) + 0.01) ** -1.5
        answers.append(np.pad((strength[:, :, None] * away).sum(axis=1), ((0, 0), (0, 1))))
    return {"acceleration": np.array(answers)}


def pnpoly(inputs: Arrays) -> Answers:
    """Parity of the edges to the right of every point; edges in float32, as rounding decides which side."""
    vertex = inputs["vertex"]
    after = np.roll(vertex, -1, axis=0)
    slope = (after[:, 0] - vertex[:, 0]) / (after[:, 1] - vertex[:, 1])
    x, y = inputs["point"][..., 0, None], inputs["point"][..., 1, None]
    between = (vertex[:, 1] > y) != (after[:, 1] > y)
    crossing = ((y - vertex[:, 1]).astype(float) * slope + vertex[:, 0]).astype(np.float32)
    return {"result": (between & (x < crossing)).sum(axis=-1) % 2}


def spmv(inputs: Arrays) -> Answers:
    """The k-th number of a row lies k (2^32 / golden ratio) mod 2^32 / 2^14 to the right of the diagonal."""
    rows, width = inputs["a"].shape[1:]
    offsets = (np.arange(width, dtype=np.uint64) * 2654435761 % 2**32 >> 14).astype(int)
    columns = (np.arange(rows)[:, None] + offsets) % rows
    return {"y": (inputs["a"].astype(float) * inputs["x"][:, columns]).sum(axis=2)}


def softmax(inputs: Arrays) -> Answers:
    """Exponentials over their sum."""
    powers = np.exp(inputs["x"].astype(float))
    return {"y": powers / powers.sum(axis=1, keepdims=True)}


REFERENCES: Mapping[str, Callable[[Arrays], Answers]] = {
    made.__name__: made for made in (reduction, transpose, stencil, histogram, nbody, pnpoly, spmv, softmax)
}
