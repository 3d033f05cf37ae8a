"""What the columns of an image become under a filter."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[Any]


def columns(image: Image, taps: NDArray[Any], R: int) -> Image:
    """The convolution of each column with the taps, in float64; columns are zero beyond their ends."""
    padded = np.pad(image.astype(np.float64), ((R, R), (0, 0)))
    height = image.shape[0]
    result = np.zeros(image.shape)
    for i in range(2 * R + 1):
        result += taps[2 * R - i] * padded[i : i + height]
    return result
