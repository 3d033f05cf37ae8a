"""Kernels that are described in Python, for tests."""

from typing import Any

import numpy as np

from tuner import Kernel

VADD = """
__global__ void vadd(float* c, const float* a, const float* b, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) c[i] = a[i] + b[i];
}
"""
N = 4096
SIM = "sim:k40c"
BLOCKS = {"block_size_x": [64, 128, 256]}


def arrays() -> dict[str, Any]:
    """The arguments of ``VADD`` by name."""
    a, b = np.random.default_rng(1).random((2, N), dtype=np.float32)
    return {"c": np.zeros_like(a), "a": a, "b": b, "n": N}


def vadd(**changes: Any) -> Kernel:
    """The kernel, with other options where some are named."""
    options: dict[str, Any] = {
        "arguments": arrays(),
        "outputs": ["c"],
        "grid": "ceil_div(n, block_size_x)",
        "tunables": BLOCKS,
        **changes,
    }
    source = options.pop("source", VADD)
    return Kernel(source, options.pop("name", None), **options)
