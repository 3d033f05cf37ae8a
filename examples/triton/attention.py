"""Attention in Triton, as FlashAttention does it: one pass over keys and values, and no matrix of scores."""

import triton
import triton.language as tl


@triton.jit
def attention(out, q, k, v, n, scale, HEAD: tl.constexpr, TILE_M: tl.constexpr, TILE_N: tl.constexpr):
    """Write softmax(scale q k^T) v of each head; a program takes TILE_M rows of one."""
    head = tl.program_id(1).to(tl.int64) * n * HEAD
    i, j, d = tl.program_id(0) * TILE_M + tl.arange(0, TILE_M), tl.arange(0, TILE_N), tl.arange(0, HEAD)
    here = head + i[:, None] * HEAD + d[None, :]
    x = tl.load(q + here, mask=(i < n)[:, None], other=0.0)
    highest = tl.full((TILE_M,), -float("inf"), dtype=tl.float32)
    total = tl.zeros((TILE_M,), dtype=tl.float32)
    result = tl.zeros((TILE_M, HEAD), dtype=tl.float32)
    for first in range(0, n, TILE_N):
        inside = first + j < n
        y = tl.load(k + head + (first + j)[None, :] * HEAD + d[:, None], mask=inside[None, :], other=0.0)
        scores = tl.where(inside[None, :], tl.dot(x, y) * (scale * 1.4426950408889634), -float("inf"))
        now = tl.maximum(highest, tl.max(scores, axis=1))
        weights, shrunk = tl.exp2(scores - now[:, None]), tl.exp2(highest - now)
        total = total * shrunk + tl.sum(weights, axis=1)
        z = tl.load(v + head + (first + j)[:, None] * HEAD + d[None, :], mask=inside[:, None], other=0.0)
        result = tl.dot(weights.to(z.dtype), z, result * shrunk[:, None])
        highest = now
    tl.store(out + here, result / total[:, None], mask=(i < n)[:, None])
