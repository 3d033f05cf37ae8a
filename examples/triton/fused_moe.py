"""Layers of experts in Triton: each token times the matrices of the experts that it is sent to."""

import triton
import triton.language as tl


@triton.jit
def sort_by_expert(
    pairs,
    experts,
    ids,
    count,
    E,
    blocks,
    PAIRS: tl.constexpr,
    BLOCKS: tl.constexpr,
    BLOCK_SIZE_M: tl.constexpr,
):
    """List the pairs of token and choice by expert, in whole blocks, and the expert of each block, or -1."""
    pair, block = tl.arange(0, PAIRS), tl.arange(0, BLOCKS)
    row = tl.arange(0, BLOCK_SIZE_M)
    expert = tl.load(ids + pair, mask=pair < count, other=-1)
    of = tl.full((BLOCKS,), -1, tl.int32)
    begin = 0
    for e in range(E):
        own = (expert == e).to(tl.int32)
        number = tl.sum(own)
        end = begin + tl.cdiv(number, BLOCK_SIZE_M)
        tl.store(pairs + begin * BLOCK_SIZE_M + tl.cumsum(own) - 1, pair, mask=own > 0)
        pad = begin * BLOCK_SIZE_M + number + row
        tl.store(pairs + pad, count, mask=pad < end * BLOCK_SIZE_M)
        of = tl.where((block >= begin) & (block < end), e, of)
        begin = end
    tl.store(experts + block, of, mask=block < blocks)


@triton.jit
def fused_moe(
    c,
    a,
    b,
    pairs,
    experts,
    count,
    blocks,
    columns,
    K,
    top_k,
    BLOCK_SIZE_M: tl.constexpr,
    BLOCK_SIZE_N: tl.constexpr,
    BLOCK_SIZE_K: tl.constexpr,
    GROUP_SIZE_M: tl.constexpr,
):
    """Write the rows of c for all pairs: a token of a times the transposed matrix of its expert in b."""
    program, across = tl.program_id(0), tl.cdiv(columns, BLOCK_SIZE_N)
    first = program // (GROUP_SIZE_M * across) * GROUP_SIZE_M
    group = min(blocks - first, GROUP_SIZE_M)
    within = program % (GROUP_SIZE_M * across)
    block = first + within % group
    expert = tl.load(experts + block).to(tl.int64)
    if expert < 0:
        return
    pair = tl.load(pairs + block * BLOCK_SIZE_M + tl.arange(0, BLOCK_SIZE_M))
    j = within // group * BLOCK_SIZE_N + tl.arange(0, BLOCK_SIZE_N)
    k = tl.arange(0, BLOCK_SIZE_K)
    here = (pair < count)[:, None]
    left = a + (pair // top_k)[:, None] * K + k[None, :]
    right = b + expert * columns * K + (j % columns)[None, :] * K + k[:, None]
    total = tl.zeros((BLOCK_SIZE_M, BLOCK_SIZE_N), dtype=tl.float32)
    for step in range(tl.cdiv(K, BLOCK_SIZE_K)):
        inside = step * BLOCK_SIZE_K + k < K
        x = tl.load(left, mask=here & inside[None, :], other=0.0)
        y = tl.load(right, mask=inside[:, None], other=0.0)
        total = tl.dot(x, y, total)
        left += BLOCK_SIZE_K
        right += BLOCK_SIZE_K
    at = c + pair.to(tl.int64)[:, None] * columns + j[None, :]
    tl.store(at, total.to(c.dtype.element_ty), mask=here & (j < columns)[None, :])
