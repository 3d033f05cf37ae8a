"""``tuner.linalg``: answers, shapes, pivots and errors are SciPy's."""

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import host_build
import numpy as np
import pytest
import scipy.linalg
from fake_cupy import DeviceArray
from fake_linalg import HostCompiler, LinalgCupy, linalg_cupy
from fake_linalg_large import leave_batched_kernels
from linalg_cases import N, each, near, positive, random
from numpy.linalg import LinAlgError

import tuner
from tuner import linalg
from tuner.linalg.operations import ROUTES, Route

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LinalgCupy:
    return linalg_cupy(monkeypatch, tmp_path)


@pytest.fixture(params=["batched", "large"])
def either(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LinalgCupy:
    """With the batched kernels, or with those of one matrix, one after another, and blocks of reflections."""
    if request.param == "large":
        leave_batched_kernels(monkeypatch)
    return linalg_cupy(monkeypatch, tmp_path)


# --- Cholesky -------------------------------------------------------------------------------------


@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize(("lead", "dtype"), [((), "float64"), ((2, 3), "float32")])
def test_cholesky(either: LinalgCupy, lead: tuple[int, ...], dtype: str, lower: bool) -> None:
    """One triangle is read, the other is zero in the result, and the input stays as it was."""
    a = positive(*lead)
    unread = np.full_like(a, np.nan)
    read = np.where(np.tri(N, dtype=bool) if lower else np.tri(N, dtype=bool).T, a, unread).astype(dtype)
    given = either.asarray(read.copy())
    assert near(linalg.cholesky(given, lower), each(scipy.linalg.cholesky, a, lower=lower), dtype)
    assert np.array_equal(given, read, equal_nan=True)


def test_cholesky_names_the_first_matrix_that_fails(cp: LinalgCupy) -> None:
    """The message has the place in the batch and the minor; without a check nothing is raised."""
    a = positive(2, 3)
    a[1, 0] -= 100 * np.diag([0, 0, 1, 0, 0])
    a[1, 2] = -a[1, 2]
    with pytest.raises(LinAlgError, match=r"^matrix \(1, 0\): 3-th leading minor of the array is not pos"):
        linalg.cholesky(cp.asarray(a))
    with pytest.raises(LinAlgError, match=r"^matrix 1: 1-th leading minor"):
        linalg.cholesky(cp.asarray(a[1, 1:]))
    with pytest.raises(LinAlgError, match=r"^3-th leading minor"):
        linalg.cholesky(cp.asarray(a[1, 0]))
    unchecked = linalg.cholesky(cp.asarray(a), check=False)
    assert np.allclose(unchecked[0], each(scipy.linalg.cholesky, a[0]))


# --- LU -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("lead", "m", "n"), [((), N, N), ((2, 2), N, N), ((3,), N, 3), ((3,), 3, N)])
def test_lu(either: LinalgCupy, lead: tuple[int, ...], m: int, n: int) -> None:
    """Factors and pivots are SciPy's, of square matrices and others."""
    a = random(*lead, m, n)
    flat = a.reshape(-1, m, n)
    right = np.array([scipy.linalg.lu_factor(one)[1] for one in flat])
    columns = either.asarray(np.ascontiguousarray(a.swapaxes(-1, -2))).swapaxes(-1, -2)
    for held in (either.asarray(a), columns):
        factors, pivots = linalg.lu_factor(held)
        assert near(factors, each(lambda one: scipy.linalg.lu_factor(one)[0], a))
        assert pivots.dtype == np.int32
        assert np.array_equal(pivots, right.reshape(*lead, min(m, n)))
        assert np.array_equal(held, a)  # it is read where it is
    for found, place in zip(linalg.lu(either.asarray(a)), range(3), strict=True):
        assert near(found, each(lambda one, place=place: scipy.linalg.lu(one)[place], a))
    p, lower, upper = linalg.lu(either.asarray(a), p_indices=True)
    assert np.allclose(np.take_along_axis(lower, p[..., None], axis=-2) @ upper, a)
    assert np.allclose(np.matmul(*linalg.lu(either.asarray(a), permute_l=True)), a)


def test_singular_matrices(cp: LinalgCupy) -> None:
    """LU warns and solve raises, both with the place; nothing is looked at without a check."""
    a = random(3, N, N)
    a[1, :, 2] = 0
    with pytest.warns(scipy.linalg.LinAlgWarning, match=r"^matrix 1: Diagonal number 3 is exactly zero"):
        linalg.lu_factor(cp.asarray(a))
    with pytest.raises(LinAlgError, match=r"^matrix 1: Matrix is singular: diagonal 3 of U"):
        linalg.solve(cp.asarray(a), cp.asarray(random(N)))
    unchecked = linalg.solve(cp.asarray(a), cp.asarray(random(N)), check=False)
    assert np.isfinite(unchecked[0]).all()
    assert not np.isfinite(unchecked[1]).all()


def test_pivots_that_are_none_touch_no_other_memory(cp: LinalgCupy) -> None:
    """Row numbers beyond the matrix are left out."""
    factors, pivots = linalg.lu_factor(cp.asarray(random(2, N, N)))
    wrong = cp.asarray(np.where(np.asarray(pivots) == np.arange(N), np.int32(10**6), np.int32(-7)))
    found = linalg.lu_solve((factors, wrong), cp.asarray(random(N)))
    plain = linalg.lu_solve((factors, cp.asarray(np.array([range(N)] * 2, np.int32))), cp.asarray(random(N)))
    assert np.array_equal(found, plain)


# --- QR -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["full", "economic", "r", "raw"])
@pytest.mark.parametrize(("lead", "m", "n"), [((), N, N), ((2,), N, 3), ((2, 1), 3, N)])
def test_qr(either: LinalgCupy, lead: tuple[int, ...], m: int, n: int, mode: str) -> None:
    """Q and R are SciPy's with their signs, of square matrices and others."""
    a = random(*lead, m, n)
    found = linalg.qr(either.asarray(a), mode)
    if mode == "raw":
        (factors, tau), upper = found
        assert near(factors, each(lambda one: scipy.linalg.qr(one, mode="raw")[0][0], a))
        right = each(lambda one: scipy.linalg.qr(one, mode="raw")[0][1][:, None], a)[..., 0]
        assert near(tau, right)
        assert near(upper, each(lambda one: scipy.linalg.qr(one, mode="raw")[1], a))
        return
    assert len(found) == (1 if mode == "r" else 2)
    for place, one in enumerate(found):
        assert near(one, each(lambda one, place=place: scipy.linalg.qr(one, mode=mode)[place], a))


def test_q_is_orthogonal_where_a_column_is_done_already(either: LinalgCupy) -> None:
    """Reflections that do nothing are left out of Q."""
    a = np.triu(random(2, N, N)).astype("float32")
    q, r = linalg.qr(either.asarray(a))
    assert np.allclose(q @ q.swapaxes(-1, -2), np.eye(N), atol=1e-6)
    assert np.allclose(q @ r, a, atol=1e-6)


# --- systems --------------------------------------------------------------------------------------


@pytest.mark.parametrize("assume_a", [None, "gen", "pos"])
@pytest.mark.parametrize(("n", "k"), [(N, 0), (N, 2), (N, 2 * N + 1), (20, 0), (20, 9), (20, 20), (20, 41)])
def test_solve(either: LinalgCupy, assume_a: str | None, n: int, k: int) -> None:
    """A vector, a few and many right-hand sides; batches are broadcast."""
    a, b = positive(2, 1, n=n), random(3, n, k)
    b = b if k else random(n)
    right = np.linalg.solve(np.broadcast_to(a, (2, 3, n, n)), b) if k else np.linalg.solve(a[:, 0], b)
    matrices = a if k else a[:, 0]
    for lower in (False, True):
        assert near(
            linalg.solve(either.asarray(matrices), either.asarray(b), assume_a=assume_a, lower=lower), right
        )


def test_factors_solve_again(cp: LinalgCupy) -> None:
    """What lu_factor returns solves for other right-hand sides."""
    a, b = random(3, N, N), random(3, N, 2)
    assert near(linalg.lu_solve(linalg.lu_factor(cp.asarray(a)), cp.asarray(b)), np.linalg.solve(a, b))


@pytest.mark.parametrize("trans", [0, "T"])
@pytest.mark.parametrize("lower", [False, True])
@pytest.mark.parametrize("unit_diagonal", [False, True])
@pytest.mark.parametrize(("n", "k"), [(N, 3), (N, 2 * N), (20, 20), (40, 9)])
def test_triangular_systems(  # noqa: PLR0917 - a way each
    cp: LinalgCupy, n: int, k: int, unit_diagonal: bool, lower: bool, trans: int | str
) -> None:
    """Both triangles, their transposes and unit diagonals, from the left and from the right; few and many."""
    a, b = random(2, n, n) / n + 3 * np.eye(n), random(2, n, k)
    way: dict[str, Any] = {"trans": trans, "lower": lower, "unit_diagonal": unit_diagonal}
    right = each(scipy.linalg.solve_triangular, a, b, **way)
    assert near(linalg.solve_triangular(cp.asarray(a), cp.asarray(b), **way), right)
    blas: dict[str, Any] = {"trans_a": trans == "T", "lower": lower, "unit_diagonal": unit_diagonal}
    assert near(linalg.trsm(cp.asarray(a), cp.asarray(b), alpha=0.5, **blas), right / 2)
    sides = cp.asarray(np.ascontiguousarray(b.swapaxes(-1, -2)))
    blas["trans_a"] = not blas["trans_a"]
    assert near(linalg.trsm(cp.asarray(a), sides, side="right", **blas), right.swapaxes(-1, -2))


def test_zeros_on_diagonals(cp: LinalgCupy) -> None:
    """The first is named; BLAS looks at none, and unit diagonals are not read."""
    a = random(2, N, N) + 3 * np.eye(N)
    a[1, 3, 3] = 0
    with pytest.raises(LinAlgError, match=r"^matrix 1: singular matrix: resolution failed at diagonal 3"):
        linalg.solve_triangular(cp.asarray(a), cp.asarray(random(N)))
    assert np.isfinite(
        linalg.solve_triangular(cp.asarray(a), cp.asarray(random(N)), unit_diagonal=True)
    ).all()
    assert not np.isfinite(linalg.trsm(cp.asarray(a), cp.asarray(random(2, N, 1)))).all()


# --- products -------------------------------------------------------------------------------------


@pytest.mark.parametrize(("m", "k", "n"), [(N, N, N), (2, N, 3), (N, 1, 2), (2, 3, N)])
def test_gemm(cp: LinalgCupy, m: int, k: int, n: int) -> None:
    """Transposes, factors, an addend and broadcast batches."""
    a, b, c = random(3, m, k), random(2, 1, k, n), random(m, n)
    assert near(linalg.gemm(cp.asarray(a), cp.asarray(b)), a @ b)
    turned = [cp.asarray(np.ascontiguousarray(one.swapaxes(-1, -2))) for one in (a, b)]
    found = linalg.gemm(*turned, alpha=2, beta=-0.5, c=cp.asarray(c), trans_a=True, trans_b=True)
    assert near(found, 2 * (a @ b) - 0.5 * c)


def test_square_products_copy_nothing(cp: LinalgCupy) -> None:
    """Contiguous arrays go to the kernel as they are; only the result is allocated."""
    a, b = (cp.empty((4, N, N), "float64") for _ in range(2))
    a[...], b[...] = random(4, N, N), random(4, N, N, seed=1)
    linalg.gemm(a, b)
    before = cp.allocations
    assert near(linalg.gemm(a, b), np.asarray(a) @ np.asarray(b))
    assert cp.allocations - before == 1


def test_the_example_of_the_page_runs(cp: LinalgCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the page shows solves what it says, here with smaller arrays."""
    monkeypatch.setitem(sys.modules, "cupy", cp)

    def rand(*shape: int, dtype: Any) -> DeviceArray:
        return cp.asarray(random(*shape).astype(dtype))

    monkeypatch.setattr(cp, "random", SimpleNamespace(rand=rand))
    page = (Path(__file__).parent.parent / "docs/linear-algebra.md").read_text()
    example = page.split("```python\n")[1].split("```")[0]
    names: dict[str, Any] = {}
    for old, new in (("10_000", "2"), ("32, 4", "5, 4"), ("32, 32", "5, 5"), ("eye(32", "eye(5")):
        assert old in example
        example = example.replace(old, new)
    exec(example, names)  # noqa: S102 - the page's
    assert np.allclose(names["a"] @ names["x"], names["b"], atol=1e-4)
    assert np.allclose(names["spd"] @ names["y"], names["b"], atol=1e-4)
    assert np.allclose(names["lower"] @ names["z"], names["b"], atol=1e-4)
    assert np.allclose(names["q"] @ names["r"], names["a"], atol=1e-4)


# --- routes -----------------------------------------------------------------------------------------


def test_a_larger_kernel_is_one_entry(cp: LinalgCupy, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first kernel that takes the order runs."""
    monkeypatch.setitem(ROUTES, "potrf", (Route("gemv-batched", 3), *ROUTES["potrf"]))
    a = positive()
    assert near(linalg.cholesky(cp.asarray(a)), each(scipy.linalg.cholesky, a))
    assert [entry.split("<")[0] for entry in HostCompiler.compiled] == ["potrf", "moved"]


def test_the_calls_are_those_of_the_package() -> None:
    """``import tuner`` loads none of them, see ``test_apply.py``; they are there when asked for."""
    assert tuner.linalg is linalg
