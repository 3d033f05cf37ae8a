"""What one frame of the particle filter must come to."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Array = NDArray[Any]
SEED, RADIUS = 20261123, 5  # as filter.cu has them


def noise(i: Array) -> Array:
    """The generator's numbers; exact, as all of them are multiples of 2^-16."""
    z = np.uint64(SEED) + (i.astype(np.uint64) + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15)
    z = (z ^ z >> np.uint64(30)) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ z >> np.uint64(27)) * np.uint64(0x94D049BB133111EB)
    z ^= z >> np.uint64(31)
    parts = np.stack([z >> np.uint64(shift) & np.uint64(0xFFFF) for shift in (0, 16, 32, 48)])
    centred: Array = parts.sum(axis=0).astype(np.float64) - 2 * 65535
    return centred / 65536.0


def moved(x: Array, y: Array) -> tuple[Array, Array]:
    """Where the particles are in this frame."""
    i = np.arange(len(x))
    return x + 1.0 + 8.0 * noise(2 * i), y - 2.0 + 4.0 * noise(2 * i + 1)


def weights(frame: Array, x: Array, y: Array) -> Array:
    """How likely the object is at each place."""
    height, width = frame.shape
    column, row = np.floor(x + 0.5).astype(np.int64), np.floor(y + 0.5).astype(np.int64)
    total, count = np.zeros(len(x), np.int64), 0
    for dy in range(-RADIUS, RADIUS + 1):
        for dx in range(-RADIUS, RADIUS + 1):
            if dx * dx + dy * dy < RADIUS * RADIUS:
                inside = (row + dy >= 0) & (row + dy < height) & (column + dx >= 0) & (column + dx < width)
                pixel = frame[np.clip(row + dy, 0, height - 1), np.clip(column + dx, 0, width - 1)]
                pixel = pixel.astype(np.int64)
                total += np.where(inside, (pixel - 100) ** 2 - (pixel - 228) ** 2, 0)
                count += 1
    return np.exp(total / (50.0 * count))


def errors(  # noqa: PLR0917 - the arrays of the kernel file
    frame: Array, x: Array, y: Array, cdf: Array, index: Array, new_x: Array, new_y: Array
) -> dict[str, float]:
    """Errors of the distribution; and, where it falls, and indices and places that do not follow from it."""
    to_x, to_y = moved(x, y)
    right = np.cumsum(weights(frame, to_x, to_y).astype(np.longdouble))
    right /= right[-1]
    u = (np.arange(len(x)) + 0.5) / len(x)
    found = np.minimum(np.searchsorted(cdf, u), len(x) - 1)
    return {
        "distribution": float(np.abs(cdf - right).max()),
        "its end": float(abs(cdf[-1] - 1.0)),
        "places where it falls": float((np.diff(cdf) < 0).sum()),
        "wrong indices": float((index != found).sum()),
        "wrong places": float((new_x != to_x[found]).sum() + (new_y != to_y[found]).sum()),
    }
