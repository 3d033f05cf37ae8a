"""``tuner.linalg`` beyond the batched kernels: those of one matrix, one after another, and cuBLAS.

Small matrices take that way here. What all kernels have to give is in ``test_linalg.py``.
"""

from pathlib import Path
from typing import Any

import host_build
import numpy as np
import pytest
import scipy.linalg
from fake_linalg import LinalgCupy, linalg_cupy
from fake_linalg_large import leave_batched_kernels
from linalg_cases import N, near, positive, random
from numpy.linalg import LinAlgError
from numpy.typing import NDArray

from tuner import linalg
from tuner.model.errors import DeviceError

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LinalgCupy:
    leave_batched_kernels(monkeypatch)
    return linalg_cupy(monkeypatch, tmp_path)


def stored(matrices: NDArray[Any]) -> list[NDArray[Any]]:
    """Row-major, column-major, with gaps between rows, and between all elements."""
    *lead, m, n = matrices.shape
    wide, apart = np.zeros((*lead, m, n + 3)), np.zeros((*lead, 2 * m, 2 * n))
    wide[..., :n] = apart[..., ::2, ::2] = matrices
    turned = matrices.swapaxes(-1, -2).copy().swapaxes(-1, -2)
    return [matrices, turned, wide[..., :n], apart[..., ::2, ::2]]


def test_failures_have_their_place(cp: LinalgCupy) -> None:
    """Of each matrix the kernel says how it ended."""
    a = positive(2, 2)
    a[1, 0, 2, 2] = -1
    with pytest.raises(LinAlgError, match=r"^matrix \(1, 0\): 3-th leading minor of the array is not pos"):
        linalg.cholesky(cp.asarray(a))
    a[1, 1, :, 1] = 0
    with pytest.warns(scipy.linalg.LinAlgWarning, match=r"^matrix \(1, 1\): Diagonal number 2 is exactly"):
        linalg.lu_factor(cp.asarray(a))
    with pytest.raises(LinAlgError, match=r"^matrix \(1, 1\): Matrix is singular: diagonal 2 of U"):
        linalg.solve(cp.asarray(a), cp.asarray(random(N)))


@pytest.mark.parametrize("trans", [False, True])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("side", ["left", "right"])
def test_trsm(cp: LinalgCupy, side: str, lower: bool, trans: bool) -> None:
    """Either triangle of either side, of row-major, column-major and strided matrices."""
    a = random(N, N) + 3 * np.eye(N)
    b = random(N, 3) if side == "left" else random(3, N)
    triangle = (np.tril if lower else np.triu)(a)
    of = triangle.T if trans else triangle
    right = np.linalg.solve(of, 2 * b) if side == "left" else np.linalg.solve(of.T, 2 * b.T).T
    unread = np.where(triangle == 0, np.nan, a)
    for given in stored(unread):
        found = linalg.trsm(cp.asarray(given), cp.asarray(b), alpha=2, side=side, lower=lower, trans_a=trans)
        assert near(found, right)


def test_a_diagonal_of_ones_is_not_read(cp: LinalgCupy) -> None:
    """As in BLAS."""
    a, b = random(N, N), random(N, 2)
    right = np.linalg.solve(np.tril(a, -1) + np.eye(N), b)
    np.fill_diagonal(a, np.nan)
    assert near(linalg.solve_triangular(cp.asarray(a), cp.asarray(b), lower=True, unit_diagonal=True), right)


@pytest.mark.parametrize(("trans_a", "trans_b"), [(False, False), (True, False), (False, True), (True, True)])
def test_gemm(cp: LinalgCupy, trans_a: bool, trans_b: bool) -> None:
    """Matrices of any form and strides, broadcast, scaled and added."""
    a, b, c = random(2, 1, 4, N), random(3, N, 3, seed=1), random(4, 3)
    right = 2 * (a @ b) - c
    way: dict[str, Any] = {"alpha": 2, "beta": -1, "trans_a": trans_a, "trans_b": trans_b}
    for first, second in zip(stored(a), stored(b), strict=True):
        given_a = cp.asarray(first.swapaxes(-1, -2) if trans_a else first)
        given_b = cp.asarray(second.swapaxes(-1, -2) if trans_b else second)
        assert near(linalg.gemm(given_a, given_b, c=cp.asarray(c), **way), right)


def test_matrices_that_do_not_fit(cp: LinalgCupy) -> None:
    """What lacks room is said: the copies and results of a call, or the scratch arrays of its kernel."""
    a = cp.asarray(positive())
    cp.memory_bytes = cp.allocated_bytes + 8
    with pytest.raises(DeviceError, match=r"^tuner\.linalg\.lu_factor: copies and results do not fit"):
        linalg.lu_factor(a)
    cp.memory_bytes = cp.allocated_bytes + a.nbytes + N * 4 + 4 + 8
    with pytest.raises(DeviceError, match=r"^getrf: output and scratch arrays do not fit"):
        linalg.lu_factor(a)
