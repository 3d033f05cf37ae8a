"""What the columns of an image become under a filter."""

import numpy as np


def columns(image, taps, R):
    """The convolution of each column with the taps, in float64; columns are zero beyond their ends."""
    padded = np.pad(image.astype(np.float64), ((R, R), (0, 0)))
    height = image.shape[0]
    return sum(taps[2 * R - i] * padded[i : i + height] for i in range(2 * R + 1))
