"""A step of heat in a plate, tuned for energy from Python, with a NumPy function as the reference."""

from pathlib import Path

import numpy as np

import tuner

N = 4096


def heat(x):
    """One step; edges stay."""
    y = x.copy()
    y[1:-1, 1:-1] = (x[:-2, 1:-1] + x[2:, 1:-1] + x[1:-1, :-2] + x[1:-1, 2:]) / 4
    return y


plate = np.random.default_rng(0).random((N, N), dtype="float32")
kernel = tuner.Kernel(
    Path(__file__).parent / "stencil" / "stencil.cu",
    "stencil<{block_size_x}, {block_size_y}, {rows}>",
    arguments={"x": plate, "y": np.empty_like(plate), "n": np.int32(N)},
    grid=lambda c: (-(-N // c["block_size_x"]), -(-N // (c["block_size_y"] * c["rows"]))),
    tunables={"block_size_x": [16, 32, 64, 128], "block_size_y": [1, 2, 4, 8, 16], "rows": [1, 2, 4, 8, 16]},
    restrictions=["64 <= block_size_x * block_size_y <= 1024"],
    reference=heat,
    outputs=["y"],
)
result = tuner.tune(kernel, objective="energy")
print(result)
print(result.flags())
