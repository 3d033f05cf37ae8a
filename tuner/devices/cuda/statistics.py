"""What many repeats say: a middle, how far single ones lie from it, and how sure the middle is."""

import math
from collections.abc import Sequence

import numpy as np
from scipy.special import stdtrit

_BLOCKS = 8
_LEAST = 2  # a scatter needs two values
_ONE_SIGMA = 0.8413447460685429  # a normal distribution lies below its mean and one deviation this often


def median_and_spread(values: Sequence[float]) -> tuple[float, float]:
    """Median, and half the range from the 16th to the 84th percentile."""
    low, middle, high = np.percentile(values, (16, 50, 84))
    return float(middle), float(high - low) / 2


def uncertainty(values: Sequence[float]) -> float:
    """Standard uncertainty of the middle of values in the order of time, 0 for fewer than two.

    Neighbours resemble each other, since clock and temperature wander, so the scatter of single values by
    the root of their number would be far too small. The values are cut into at most eight blocks instead: the
    standard error of the blocks' means, widened by the one-sigma (68.3 %) width of Student's distribution.
    """
    blocks = np.array_split(np.asarray(values, dtype=np.float64), min(_BLOCKS, max(len(values), 1)))
    if len(blocks) < _LEAST:
        return 0.0
    means = [float(block.mean()) for block in blocks]
    factor = float(stdtrit(len(means) - 1, _ONE_SIGMA))
    return factor * float(np.std(means, ddof=1)) / math.sqrt(len(means))
