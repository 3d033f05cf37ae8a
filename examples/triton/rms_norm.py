"""RMSNorm in Triton with the addition before it: a program takes one row, in pieces of a block."""

import triton
import triton.language as tl


@triton.jit
def rms_norm(out, total, inp, residual, weight, cols, eps, BLOCK: tl.constexpr):
    """Write total = inp + residual, and out: its rows by their root mean square, times weight."""
    row = tl.program_id(0).to(tl.int64) * cols
    squares = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        inside = at < cols
        x = tl.load(inp + row + at, mask=inside, other=0.0).to(tl.float32)
        x += tl.load(residual + row + at, mask=inside, other=0.0)
        tl.store(total + row + at, x, mask=inside)
        squares += x * x
    scale = 1 / tl.sqrt(tl.sum(squares, axis=0) / cols + eps)
    for first in range(0, cols, BLOCK):  # from the cache: what was stored may be another thread's
        at = first + tl.arange(0, BLOCK)
        inside = at < cols
        x = tl.load(inp + row + at, mask=inside, other=0.0).to(tl.float32)
        x += tl.load(residual + row + at, mask=inside, other=0.0)
        tl.store(out + row + at, x * scale * tl.load(weight + at, mask=inside, other=0.0), mask=inside)
