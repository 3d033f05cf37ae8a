"""A vector addition, tuned from Python."""

from pathlib import Path

import numpy as np

import tuner

a, b = np.random.default_rng(0).random((2, 2**24), dtype="float32")
kernel = tuner.Kernel(
    Path(__file__).parent / "vector-add" / "vector_add.cu",
    arguments={"a": a, "b": b, "c": np.empty_like(a), "n": np.int32(a.size)},
    grid=f"ceil_div({a.size}, vector * loads * block_size_x)",
    block="block_size_x",
    tunables={"block_size_x": [128, 256, 512, 1024], "vector": [1, 2, 4], "loads": [1, 2, 4, 8]},
    reference={"c": "a + b"},
)
print(tuner.tune(kernel))
