"""What the kernel is checked against."""

import numpy as np


def spmv(offsets, columns, values, x):
    """The product by rows: differences of running sums."""
    products = values.astype("float64") * x[columns]
    running = np.concatenate([[0.0], np.cumsum(products)])
    return running[offsets[1:]] - running[offsets[:-1]]
