"""A vector addition, tuned from Python."""

import numpy as np

import tuner

a, b = np.random.default_rng(0).random((2, 2**24), dtype="float32")
kernel = tuner.Kernel(
    __file__.replace("vector_add.py", "vector-add/vector_add.cu"),
    "vector_add<{block_size_x}, {loads}, {vector}>",
    arguments={"a": a, "b": b, "c": np.empty_like(a), "n": np.int32(a.size)},
    grid="ceil_div(n, vector * loads * block_size_x)",
    tunables={"block_size_x": [128, 256, 512, 1024], "vector": [1, 2, 4], "loads": [1, 2, 4, 8]},
    reference={"c": "a + b"},
)
print(tuner.tune(kernel))
