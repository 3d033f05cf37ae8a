"""The product of a sparse matrix of one's own and a vector, tuned from Python."""

from pathlib import Path

import numpy as np

import tuner

random = np.random.default_rng(0)
rows, columns = 2**18, 2**18
offsets = np.concatenate([[0], np.cumsum(random.poisson(24, rows))]).astype("int32")
indices = random.integers(0, columns, offsets[-1], dtype="int32")
values, x = random.random(offsets[-1], dtype="float32"), random.random(columns, dtype="float32")
products = np.concatenate([[0], np.cumsum(values.astype("float64") * x[indices])])

kernel = tuner.Kernel(
    Path(__file__).parent / "spmv" / "spmv.cu",
    "spmv<{block_size_x}, {threads_per_row}, {unroll}>",
    arguments=[offsets, indices, values, x, np.empty(rows, "float32"), np.int32(rows)],
    grid=lambda c: -(-rows * c["threads_per_row"] // c["block_size_x"]),
    tunables={
        "block_size_x": [64, 128, 256, 512],
        "threads_per_row": [1, 2, 4, 8, 16, 32],
        "unroll": [1, 2, 4],
    },
    restrictions=[lambda c: c["threads_per_row"] * c["unroll"] <= 64],
    reference={"y": products[offsets[1:]] - products[offsets[:-1]]},
)
result = tuner.tune(kernel)
print(result.best, f"{result.time_s * 1e6:.1f} µs")
