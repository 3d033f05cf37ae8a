"""A product of matrices in Triton: tiles of the result in groups of rows, whose inputs stay in the cache."""

import triton
import triton.language as tl


@triton.jit
def tile_of(program, M, N, TILE_M: tl.constexpr, TILE_N: tl.constexpr, GROUP: tl.constexpr):
    """Row and column of the tile that a program takes."""
    down, across = tl.cdiv(M, TILE_M), tl.cdiv(N, TILE_N)
    first = program // (GROUP * across) * GROUP
    rows = min(down - first, GROUP)
    within = program % (GROUP * across)
    return first + within % rows, within // rows


@triton.jit
def matmul(
    c, a, b, M, N, K, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr, GROUP: tl.constexpr
):
    """Write c = a b, of M x K and K x N elements."""
    row, column = tile_of(tl.program_id(0), M, N, TILE_M, TILE_N, GROUP)
    i = row * TILE_M + tl.arange(0, TILE_M)
    j = column * TILE_N + tl.arange(0, TILE_N)
    k = tl.arange(0, TILE_K)
    left = a + (i % M)[:, None] * K + k[None, :]
    right = b + k[:, None] * N + (j % N)[None, :]
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, TILE_K)):
        inside = step * TILE_K + k < K
        x = tl.load(left, mask=inside[None, :], other=0.0)
        y = tl.load(right, mask=inside[:, None], other=0.0)
        total = tl.dot(x, y, total)
        left += TILE_K
        right += TILE_K * N
    at = c + i[:, None] * N + j[None, :]
    tl.store(at, total.to(c.dtype.element_ty), mask=(i < M)[:, None] & (j < N)[None, :])
