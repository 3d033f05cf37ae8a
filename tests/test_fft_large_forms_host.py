"""Numerics of the transforms that keep a problem on chip, without a GPU."""

from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest

from tuner.model import Source

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

Array = npt.NDArray[Any]

KERNELS = Path(__file__).parents[1] / "kernels"
PERSISTENT = host_build.read_source(KERNELS / "fft-large" / "persistent.cu", [KERNELS / "common"])
CLUSTER = host_build.read_source(KERNELS / "fft-large" / "cluster.cu", [KERNELS / "common"])

PERSISTENT_SHAPES = [
    "16384, 32, 32, Order::last",
    "16384, 32, 32, Order::first",
    "16384, 16, 16, Order::falling",
    "8192, 8, 8, Order::rising",
]
# N, N1, P, B: what a cluster of these blocks holds in at most 1024 threads, the most that a block has on the host
CLUSTER_SHAPES = [(16384, 128, 16, 8), (16384, 64, 32, 16), (16384, 256, 32, 4), (32768, 256, 32, 8), (8192, 64, 16, 2)]


def numbers(batch: int, n: int) -> Array:
    rng = np.random.default_rng(n)
    return rng.standard_normal((batch, n, 2), np.float32).view(np.complex64)[..., 0]


def relative_error(answer: Array, x: Array, inverse: bool) -> float:
    """Largest relative L2 error of a row against NumPy's transform in complex128."""
    reference = (np.fft.ifft if inverse else np.fft.fft)(x.astype(np.complex128))
    return float((np.linalg.norm(answer - reference, axis=1) / np.linalg.norm(reference, axis=1)).max())


def run(source: Source, entry: str, x: Array, launch: tuple[int, int, int], *scalars: int, **how: Any) -> Array:
    y = np.full_like(x, np.nan)
    x.flags.writeable = False  # a kernel that writes its input fails
    host_build.run(source, entry, *launch, [x, y, *scalars], **how)
    return y


def persistent(shape: str, bulk: bool, inverse: bool, x: Array, blocks: int, **how: Any) -> Array:
    n, p = (int(word) for word in shape.split(",")[:2])
    entry = f"fft_persistent<{shape}, {str(bulk).lower()}, {str(inverse).lower()}>"
    shared_bytes = 16 + 8 * n * bulk + 4 * (n + n // 8)
    return run(PERSISTENT, entry, x, (blocks, n // p, shared_bytes), len(x), **how)


def cluster_bytes(n: int, n1: int, b: int, scratch: int) -> int:
    """Shared memory of a block, as the kernel file says it."""
    n2, points = n // n1, n // b
    room = max(n1 // b * (n2 + n2 // 16 + 16), 0 if scratch else points + points // 8)
    return 16 + 8 * room + (points + points // 8) * scratch


def clustered(shape: tuple[int, int, int, int], options: str, scratch: int, x: Array, **how: Any) -> Array:
    n, n1, p, b = shape
    entry = f"fft_cluster<{n}, {n1}, {p}, {b}, {options}, 1>"
    return run(CLUSTER, entry, x, (len(x), n // p, b * cluster_bytes(n, n1, b, scratch)), **how)


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("shape", PERSISTENT_SHAPES)
def test_a_walking_block_transforms_every_problem(shape: str, bulk: bool) -> None:
    """Blocks that walk over more problems than they are transform each, to rounding, in any order of threads."""
    n = int(shape.split(",")[0])
    x = numbers(5, n)
    for order in host_build.ORDERS:
        answer = persistent(shape, bulk, False, x, 2, order=order)
        assert relative_error(answer, x, False) <= 1e-7 * np.log2(n), order
    assert relative_error(persistent(shape, bulk, True, x, 2), x, True) <= 1e-7 * np.log2(n)


def test_blocks_without_a_problem_write_nothing() -> None:
    """A grid larger than the batch does no harm."""
    x = numbers(1, 8192)
    answer = persistent(PERSISTENT_SHAPES[-1], True, False, x, 3)
    assert relative_error(answer, x, False) <= 1e-7 * 13


@pytest.mark.parametrize(
    ("options", "scratch", "inverse"),
    [
        ("16, Order::last, 0, false, false, 1, false", 0, False),
        ("16, Order::first, 0, true, true, 2, true", 0, True),
        ("8, Order::rising, 4, true, false, 4, false", 4, False),
        ("16, Order::falling, 4, false, true, 8, true", 4, True),
        ("16, Order::last, 8, true, true, 1, false", 8, False),
    ],
)
@pytest.mark.parametrize("shape", CLUSTER_SHAPES)
def test_a_cluster_transforms_every_problem(
    shape: tuple[int, int, int, int], options: str, scratch: int, inverse: bool
) -> None:
    """Every block, row and column of a cluster contributes, to rounding, in any order of threads."""
    x = numbers(2, shape[0])
    for order in host_build.ORDERS:
        answer = clustered(shape, options, scratch, x, order=order)
        assert relative_error(answer, x, inverse) <= 1e-7 * np.log2(shape[0]), order
