"""Kernels that tests hold against Triton's own launcher: each has another part of what launches may have."""

import triton
import triton.language as tl


@triton.jit
def scaled_sum(out, x, y, n, scale, negate, BLOCK: tl.constexpr):
    """Numbers of all kinds: whole, with a fraction, true or false."""
    at = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    total = scale * tl.load(x + at, mask=inside) + tl.load(y + at, mask=inside)
    tl.store(out + at, tl.where(negate, -total, total), mask=inside)


@triton.jit
def row_max(x):
    return tl.max(x, axis=0)


@triton.heuristics({"EVEN": lambda args: args["cols"] % args["BLOCK"] == 0})
@triton.jit
def softmax(out, inp, cols, BLOCK: tl.constexpr, EVEN: tl.constexpr):
    """A function that is called, and a heuristic that looks at an argument."""
    row = tl.program_id(0)
    at = tl.arange(0, BLOCK)
    if EVEN:
        x = tl.load(inp + row * cols + at)
    else:
        x = tl.load(inp + row * cols + at, mask=at < cols, other=-float("inf"))
    weights = tl.exp(x - row_max(x))
    tl.store(out + row * cols + at, weights / tl.sum(weights, axis=0), mask=at < cols)


@triton.jit
def matmul(c, a, b, M, N, K, TILE_M: tl.constexpr, TILE_N: tl.constexpr, TILE_K: tl.constexpr):
    """Shared memory that only the compiler knows, in stages that overlap, and tensor cores."""
    row, column = tl.program_id(0), tl.program_id(1)
    i = row * TILE_M + tl.arange(0, TILE_M)
    j = column * TILE_N + tl.arange(0, TILE_N)
    k = tl.arange(0, TILE_K)
    total = tl.zeros((TILE_M, TILE_N), dtype=tl.float32)
    for first in range(0, K, TILE_K):
        inside = first + k < K
        x = tl.load(
            a + i[:, None] * K + first + k[None, :], mask=inside[None, :] & (i < M)[:, None], other=0.0
        )
        y = tl.load(
            b + (first + k)[:, None] * N + j[None, :], mask=inside[:, None] & (j < N)[None, :], other=0.0
        )
        total = tl.dot(x, y, total)
    at = c + i[:, None] * N + j[None, :]
    tl.store(at, total.to(tl.float16), mask=(i < M)[:, None] & (j < N)[None, :])


@triton.jit
def rms_norm(out, inp, weight, bias, cols, eps, BLOCK: tl.constexpr):
    """An array that may be None."""
    row = tl.program_id(0)
    total = tl.zeros((BLOCK,), dtype=tl.float32)
    for first in range(0, cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(inp + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
        total += x * x
    scale = 1 / tl.sqrt(tl.sum(total, axis=0) / cols + eps)
    for first in range(0, cols, BLOCK):
        at = first + tl.arange(0, BLOCK)
        x = tl.load(inp + row * cols + at, mask=at < cols, other=0.0).to(tl.float32)
        y = x * scale * tl.load(weight + at, mask=at < cols, other=0.0)
        if bias is not None:
            y += tl.load(bias + at, mask=at < cols, other=0.0)
        tl.store(out + row * cols + at, y.to(out.dtype.element_ty), mask=at < cols)


@triton.jit
def histogram(counts, values, n, BLOCK: tl.constexpr):
    """An array that is read and written, by atomics."""
    at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
    inside = at < n
    bins = tl.load(values + at, mask=inside, other=0)
    tl.atomic_add(counts + bins, 1, mask=inside)


@triton.jit
def gathered_rows(out, table, rows, ROWS: tl.constexpr, COLS: tl.constexpr):
    """A descriptor that is made on the device, in scratch memory of each program."""
    source = tl.make_tensor_descriptor(table, shape=[ROWS, COLS], strides=[COLS, 1], block_shape=[16, COLS])
    first = tl.program_id(0) * 16
    target = tl.make_tensor_descriptor(out, shape=[ROWS, COLS], strides=[COLS, 1], block_shape=[16, COLS])
    target.store([first, 0], source.load([first, 0]) + rows)


@triton.jit
def warps_apart(c, a, b, N, BLOCK: tl.constexpr):
    """More warps than the option says: some load, others compute."""
    x = tl.make_tensor_descriptor(a, shape=[N, N], strides=[N, 1], block_shape=[128, 64])
    y = tl.make_tensor_descriptor(b, shape=[N, N], strides=[N, 1], block_shape=[64, BLOCK])
    total = tl.zeros((128, BLOCK), dtype=tl.float32)
    for i in tl.range(0, N // 64, warp_specialize=True):
        total = tl.dot(x.load([0, i * 64]), y.load([i * 64, tl.program_id(0) * BLOCK]), total)
    at = c + tl.arange(0, 128)[:, None] * N + tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)[None, :]
    tl.store(at, total.to(tl.float16))


@triton.jit
def unmarked(out, BLOCK: tl.constexpr = 64):
    """A constant with a default, and one array."""
    tl.store(out + tl.arange(0, BLOCK), tl.arange(0, BLOCK))
