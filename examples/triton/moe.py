"""Products of a mixture of experts in Triton: one launch gathers, multiplies and weighs."""

import triton
import triton.language as tl


@triton.jit
def span_of(program, offsets, EXPERTS: tl.constexpr, TILE_M: tl.constexpr):
    """The expert of a program, its first row and where its expert's rows end; EXPERTS where there is none."""
    experts = tl.arange(0, EXPERTS)
    begin, end = tl.load(offsets + experts), tl.load(offsets + experts + 1)
    tiles = tl.cdiv(end - begin, TILE_M)
    behind = tl.cumsum(tiles, axis=0)
    expert = tl.sum((behind <= program).to(tl.int32), axis=0)
    first = begin + (program - behind + tiles) * TILE_M
    own = experts == expert
    return expert, tl.sum(tl.where(own, first, 0), axis=0), tl.sum(tl.where(own, end, 0), axis=0)


@triton.jit
def moe(
    c,
    a,
    b,
    tokens,
    weights,
    offsets,
    N,
    K,
    EXPERTS: tl.constexpr,
    TILE_M: tl.constexpr,
    TILE_N: tl.constexpr,
    TILE_K: tl.constexpr,
):
    """Write row r of c: weights[r] times row tokens[r] of a, times the matrix of the expert.

    Rows of an expert begin at offsets[expert], those of the next one follow.
    """
    expert, first, end = span_of(tl.program_id(0), offsets, EXPERTS, TILE_M)
    if expert < EXPERTS:
        rows = first + tl.arange(0, TILE_M)
        mine = rows < end
        j, k = tl.program_id(1) * TILE_N + tl.arange(0, TILE_N), tl.arange(0, TILE_K)
        token = tl.load(tokens + rows, mask=mine, other=0)
        left = a + token[:, None].to(tl.int64) * K + k[None, :]
        right = b + expert.to(tl.int64) * K * N + k[:, None] * N + (j % N)[None, :]
        total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
        for step in range(tl.cdiv(K, TILE_K)):
            inside = step * TILE_K + k < K
            x = tl.load(left, mask=inside[None, :] & mine[:, None], other=0.0)
            y = tl.load(right, mask=inside[:, None], other=0.0)
            total = tl.dot(x, y, total)
            left += TILE_K
            right += TILE_K * N
        total *= tl.load(weights + rows, mask=mine, other=0.0)[:, None]
        tl.store(
            c + rows[:, None].to(tl.int64) * N + j[None, :], total, mask=mine[:, None] & (j < N)[None, :]
        )
