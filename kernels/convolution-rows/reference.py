"""What the rows of an image become under a filter."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Image = NDArray[Any]


def rows(image: Image, taps: NDArray[Any], R: int) -> Image:
    """The convolution of each row with the taps, in float64; rows are zero beyond their ends."""
    padded = np.pad(image.astype(np.float64), ((0, 0), (R, R)))
    width = image.shape[1]
    result = np.zeros(image.shape)
    for i in range(2 * R + 1):
        result += taps[2 * R - i] * padded[:, i : i + width]
    return result
