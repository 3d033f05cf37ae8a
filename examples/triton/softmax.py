"""Softmax of rows in Triton: a program takes one row, in one block."""

import triton
import triton.language as tl


@triton.jit
def softmax(out, inp, cols, BLOCK: tl.constexpr):
    """Write the softmax of each row; BLOCK is a power of two that holds one."""
    row = tl.program_id(0).to(tl.int64)
    at = tl.arange(0, BLOCK)
    inside = at < cols
    x = tl.load(inp + row * cols + at, mask=inside, other=-float("inf"))
    weights = tl.exp(x - tl.max(x, axis=0))
    tl.store(out + row * cols + at, weights / tl.sum(weights, axis=0), mask=inside)
