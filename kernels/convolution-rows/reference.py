"""What the rows of an image become under a filter."""

import numpy as np


def rows(image, taps, R):
    """The convolution of each row with the taps, in float64; rows are zero beyond their ends."""
    padded = np.pad(image.astype(np.float64), ((0, 0), (R, R)))
    width = image.shape[1]
    return sum(taps[2 * R - i] * padded[:, i : i + width] for i in range(2 * R + 1))
