"""Numerics of the transforms that keep a problem on chip, without a GPU.

The host runs one block at a time, so a cluster of B blocks is one block of B times the threads there.
"""

from pathlib import Path
from typing import Any

import host_build
import numpy as np
import numpy.typing as npt
import pytest

from tuner.model.plan import Source

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

Array = npt.NDArray[Any]

KERNELS = Path(__file__).parents[2] / "kernels"
PERSISTENT = host_build.read_source(KERNELS / "fft-large" / "persistent.cu", [KERNELS / "common"])
CLUSTER = host_build.read_source(KERNELS / "fft-large" / "cluster.cu", [KERNELS / "common"])

Walk = tuple[int, int, int, str]  # N, P, r, order
WALKS: list[Walk] = [
    (16384, 32, 32, "last"),
    (16384, 32, 32, "first"),
    (16384, 16, 16, "falling"),
    (8192, 8, 8, "rising"),
]
Shape = tuple[int, int, int, int]  # N, N1, P, B; all in the 1024 threads that a block may have
SHAPES: list[Shape] = [
    (8192, 64, 16, 2),
    (16384, 64, 32, 16),
    (16384, 128, 16, 8),
    (16384, 256, 32, 4),
    (32768, 256, 32, 8),
]
# r, order, scratch, wide, async, inverse
OPTIONS = [
    (16, "last", 0, False, False, False),
    (16, "first", 0, True, True, True),
    (8, "rising", 4, True, False, False),
    (16, "falling", 4, False, True, True),
]


def numbers(batch: int, n: int) -> Array:
    rng = np.random.default_rng(n)
    return rng.standard_normal((batch, n, 2), np.float32).view(np.complex64)[..., 0]


def relative_error(answer: Array, x: Array, inverse: bool = False) -> float:
    """Largest relative L2 error of a row against NumPy's transform in complex128."""
    reference = (np.fft.ifft if inverse else np.fft.fft)(x.astype(np.complex128))
    return float((np.linalg.norm(answer - reference, axis=1) / np.linalg.norm(reference, axis=1)).max())


def words(*values: int | bool | str) -> str:
    return ", ".join(str(value).lower() for value in values)


def run(
    source: Source, entry: str, x: Array, launch: tuple[int, int, int], *scalars: int, **how: Any
) -> Array:
    y = np.full_like(x, np.nan)
    x.flags.writeable = False  # a kernel that writes its input fails
    host_build.run(source, entry, *launch, [x, y, *scalars], **how)
    return y


def walked(walk: Walk, x: Array, blocks: int, *, bulk: bool, inverse: bool = False, **how: Any) -> Array:
    n, p, r, order = walk
    entry = f"fft_persistent<{words(n, p, r)}, Order::{order}, {words(bulk, inverse)}>"
    shared_bytes = 16 + 8 * n * bulk + 4 * (n + n // 8)
    return run(how.pop("source", PERSISTENT), entry, x, (blocks, n // p, shared_bytes), len(x), **how)


def clustered(shape: Shape, options: tuple[Any, ...], x: Array, **how: Any) -> Array:
    (n, n1, p, b), (r, order, scratch, *rest) = shape, options
    n2, points = n // n1, n // b
    room = max(n1 // b * (n2 + n2 // 16 + 16), 0 if scratch else points + points // 8)
    shared_bytes = 16 + 8 * room + (points + points // 8) * scratch
    entry = f"fft_cluster<{words(n, n1, p, b, r)}, Order::{order}, {words(scratch, *rest)}, 1>"
    return run(how.pop("source", CLUSTER), entry, x, (len(x), n // p, b * shared_bytes), **how)


def changed(source: Source, code: str, instead: str) -> Source:
    assert code in source.text
    return Source(source.path, source.text.replace(code, instead), source.headers)


@pytest.mark.parametrize("bulk", [False, True])
@pytest.mark.parametrize("walk", WALKS)
def test_a_walking_block_transforms_every_problem(walk: Walk, bulk: bool) -> None:
    """Blocks that walk over several problems transform each to rounding, in any order of threads."""
    x = numbers(5, walk[0])
    for order in host_build.ORDERS:
        assert relative_error(walked(walk, x, 2, bulk=bulk, order=order), x) <= 1e-7 * np.log2(walk[0]), order
    answer = walked(walk, x, 2, bulk=bulk, inverse=True)
    assert relative_error(answer, x, inverse=True) <= 1e-7 * np.log2(walk[0])


def test_blocks_without_a_problem_write_nothing() -> None:
    """A grid larger than the batch does no harm."""
    x = numbers(1, 8192)
    assert relative_error(walked(WALKS[-1], x, 3, bulk=True), x) <= 1e-7 * 13


@pytest.mark.parametrize(
    ("bulk", "code", "instead"), [(True, "__syncthreads();", ";"), (False, "room, !bulk)", "room, false)")]
)
def test_a_walking_block_needs_its_barriers(bulk: bool, code: str, instead: str) -> None:
    """Without its barriers a walk goes wrong in some order, so these orders would show a missing one."""
    x = numbers(4, 8192)
    broken = changed(PERSISTENT, code, instead)
    answers = [walked(WALKS[-1], x, 1, bulk=bulk, order=order, source=broken) for order in host_build.ORDERS]
    assert not all(relative_error(answer, x) <= 1e-6 for answer in answers)


@pytest.mark.parametrize("options", OPTIONS, ids=str)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_a_cluster_transforms_every_problem(shape: Shape, options: tuple[Any, ...]) -> None:
    """Every block, row and column of a cluster contributes, to rounding, in any order of threads."""
    x = numbers(3, shape[0])
    for order in host_build.ORDERS:
        error = relative_error(clustered(shape, options, x, order=order), x, inverse=options[-1])
        assert error <= 1e-7 * np.log2(shape[0]), order


@pytest.mark.parametrize(
    ("code", "scratch"), [("cluster_wait();", 0), ("cluster_wait();", 4), ("__syncthreads();", 4)]
)
def test_a_cluster_needs_its_barriers(code: str, scratch: int) -> None:
    """Without its barriers a transform goes wrong in some order, so these orders would show a missing one."""
    options, x = (16, "last", scratch, False, False, False), numbers(1, 16384)
    broken = changed(CLUSTER, code, ";")
    answers = [clustered(SHAPES[2], options, x, order=order, source=broken) for order in host_build.ORDERS]
    assert not all(relative_error(answer, x) <= 1e-6 for answer in answers)
