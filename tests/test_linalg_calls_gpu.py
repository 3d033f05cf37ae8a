"""``tuner.linalg`` on a real GPU, against NumPy and SciPy."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import linalg_scales
import numpy as np
import pytest
import scipy.linalg
from numpy.typing import NDArray

import tuner.application
from tuner import linalg
from tuner.application.calls import Application
from tuner.kernel_files.catalog import Catalog

pytestmark = pytest.mark.gpu

SIZES = (1, 2, 7, 32, 65, 128)
ROUNDOFF = {"float32": 2.0**-24, "float64": 2.0**-53}
BATCH = 101


@pytest.fixture(scope="module")
def cp(cp: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """CuPy; configurations are the defaults, as nothing is stored."""
    with pytest.MonkeyPatch.context() as patch:
        application = Application(Catalog.load(), Path(tmp_path_factory.mktemp("linalg"), "tuner.db"))
        patch.setattr(tuner.application, "_application", lambda: application)
        yield cp


def random(dtype: str, *shape: int) -> NDArray[Any]:
    return np.random.default_rng(sum(shape)).uniform(-1, 1, shape).astype(dtype)


def positive(dtype: str, n: int, batch: int = BATCH) -> NDArray[Any]:
    made = random(dtype, batch, n, n)
    found: NDArray[Any] = made @ made.swapaxes(-1, -2) + n * np.eye(n, dtype=dtype)
    return found


def backward(found: Any, right: NDArray[Any]) -> float:
    """Largest difference of a matrix, by its norm, in units of roundoff times its order."""
    u, n = ROUNDOFF[right.dtype.name], max(right.shape[-2:])
    error = np.linalg.norm(found - right.astype(float), axis=(-2, -1))
    return float((error / (n * u * np.linalg.norm(right, axis=(-2, -1)))).max())


@pytest.mark.parametrize("dtype", list(ROUNDOFF))
@pytest.mark.parametrize("n", SIZES)
def test_factors_multiply_to_the_matrices(cp: Any, n: int, dtype: str) -> None:
    """Cholesky of either triangle, LU with its permutation, and QR with an orthogonal Q."""
    spd, a = positive(dtype, n), random(dtype, BATCH, n, n)
    for lower in (False, True):
        factor = linalg.cholesky(cp.asarray(spd), lower).get().astype(float)
        turned = factor.swapaxes(-1, -2)
        assert backward(factor @ turned if lower else turned @ factor, spd) < 10
    p, low, up = (one.get().astype(float) for one in linalg.lu(cp.asarray(a)))
    assert backward(p @ low @ up, a) < 10
    q, r = (one.get().astype(float) for one in linalg.qr(cp.asarray(a)))
    assert backward(q @ r, a) < 10
    assert backward(q.swapaxes(-1, -2) @ q, np.broadcast_to(np.eye(n, dtype=dtype), q.shape)) < 20
    _, pivots = linalg.lu_factor(cp.asarray(a[:3]))
    assert np.array_equal(pivots.get(), [scipy.linalg.lu_factor(one)[1] for one in a[:3]])


@pytest.mark.parametrize("dtype", list(ROUNDOFF))
@pytest.mark.parametrize("n", SIZES)
def test_solutions_solve(cp: Any, n: int, dtype: str) -> None:
    """Systems of all kinds, with one, few and many right-hand sides."""
    spd = positive(dtype, n)
    for k in (1, 3, n + 1):
        b = random(dtype, BATCH, n, k)
        for assume_a in ("gen", "pos"):
            x = linalg.solve(cp.asarray(spd), cp.asarray(b), assume_a=assume_a).get()
            assert np.allclose(spd @ x, b, rtol=0, atol=200 * n * ROUNDOFF[dtype])
        for lower in (False, True):
            triangle = (np.tril if lower else np.triu)(spd)
            for turned in (False, True):
                way: dict[str, Any] = {"trans": int(turned), "lower": lower}
                x = linalg.solve_triangular(cp.asarray(spd), cp.asarray(b), **way).get()
                of = triangle.swapaxes(-1, -2) if turned else triangle
                assert np.allclose(of @ x, b, rtol=0, atol=200 * n * ROUNDOFF[dtype])


@pytest.mark.parametrize("dtype", list(ROUNDOFF))
@pytest.mark.parametrize(("m", "k", "n"), [(1, 1, 1), (32, 32, 32), (3, 50, 17), (128, 65, 128)])
def test_products(cp: Any, m: int, k: int, n: int, dtype: str) -> None:
    """Square and other matrices, broadcast, transposed, scaled and added."""
    a, b, c = random(dtype, BATCH, m, k), random(dtype, k, n), random(dtype, BATCH, m, n)
    found = linalg.gemm(cp.asarray(a), cp.asarray(b.T.copy()), alpha=2, beta=1, c=cp.asarray(c), trans_b=True)
    assert np.allclose(found.get(), 2 * (a @ b) + c, rtol=0, atol=20 * k * ROUNDOFF[dtype])


@pytest.mark.parametrize("dtype", list(ROUNDOFF))
@pytest.mark.parametrize(("lead", "n"), [((), 1000), ((2,), 200), ((), 201)])
def test_large_matrices(cp: Any, lead: tuple[int, ...], n: int, dtype: str) -> None:
    """Factors, Q, solutions and products beyond the batched kernels; repeated calls are graphs."""
    spd = (np.broadcast_to(positive(dtype, n, 1)[0], (*lead, n, n))).copy()
    a, b = random(dtype, *lead, n, n), random(dtype, *lead, n, 3)
    for _ in range(4):
        factor = linalg.cholesky(cp.asarray(spd), lower=True).get().astype(float)
        assert backward(factor @ factor.swapaxes(-1, -2), spd) < 10
    p, low, up = (one.get().astype(float) for one in linalg.lu(cp.asarray(a)))
    assert backward(p @ low @ up, a) < 10
    if dtype == "float64":
        _, pivots = linalg.lu_factor(cp.asarray(a))
        flat = a.reshape(-1, n, n)
        right = np.array([scipy.linalg.lu_factor(one)[1] for one in flat])
        assert np.array_equal(pivots.get().reshape(-1, n), right)
    q, r = (one.get().astype(float) for one in linalg.qr(cp.asarray(a)))
    assert backward(q @ r, a) < 10
    assert backward(q.swapaxes(-1, -2) @ q, np.broadcast_to(np.eye(n, dtype=dtype), q.shape)) < 20
    for assume_a in ("gen", "pos"):
        x = linalg.solve(cp.asarray(spd), cp.asarray(b), assume_a=assume_a).get()
        assert np.allclose(spd @ x, b, rtol=0, atol=200 * n * ROUNDOFF[dtype])
    found = linalg.gemm(cp.asarray(a), cp.asarray(b), alpha=2, beta=1, c=cp.asarray(b))
    assert np.allclose(found.get(), 2 * (a @ b) + b, rtol=0, atol=20 * n * ROUNDOFF[dtype])
    tall = a[..., : n // 2]
    q, r = (one.get().astype(float) for one in linalg.qr(cp.asarray(tall), "economic"))
    assert backward(q @ r, tall) < 10
    if dtype == "float64":
        factors, pivots = (one.get() for one in linalg.lu_factor(cp.asarray(tall)))
        for place in np.ndindex(*lead):
            right, rows, _ = scipy.linalg.lapack.dgetrf(tall[place])
            assert np.array_equal(pivots[place], rows)
            assert np.allclose(factors[place], right, rtol=0, atol=1e-10)


@pytest.mark.parametrize("dtype", list(ROUNDOFF))
@pytest.mark.parametrize("n", [5, 13, 32, 100, 150, 300, 1100])  # the last by clusters
@pytest.mark.parametrize("name", list(linalg_scales.LAWS))
def test_lapacks_errors_at_any_scale(cp: Any, name: str, n: int, dtype: str) -> None:
    """Backward errors are LAPACK's, whatever the scale of matrices, columns, rows and pivots."""

    def called(function: str, *arrays: NDArray[Any], **way: Any) -> Any:
        found = getattr(linalg, function)(*map(cp.asarray, arrays), **way)
        return [one.get() for one in found] if isinstance(found, tuple) else found.get()

    linalg_scales.LAWS[name](called, n, dtype)


@pytest.mark.parametrize("dtype", list(ROUNDOFF))
@pytest.mark.parametrize(("m", "n"), [(150, 21), (1000, 300), (40000, 65)])
def test_lapacks_errors_of_tall_matrices(cp: Any, m: int, n: int, dtype: str) -> None:
    """They are those of reflections, whatever the condition and the scale."""

    def called(function: str, *arrays: NDArray[Any], **way: Any) -> Any:
        return [one.get() for one in getattr(linalg, function)(*map(cp.asarray, arrays), **way)]

    linalg_scales.tall_law(called, m, n, dtype)


def test_large_failures_are_named(cp: Any) -> None:
    """Indefinite and singular matrices beyond the batched kernels."""
    a = positive("float64", 300, 1)[0]
    a[270, 270] = -1
    with pytest.raises(np.linalg.LinAlgError, match=r"^271-th leading minor"):
        linalg.cholesky(cp.asarray(a))
    a[:, 4] = 0
    with pytest.raises(np.linalg.LinAlgError, match=r"^Matrix is singular: diagonal 5 of U"):
        linalg.solve(cp.asarray(a), cp.asarray(random("float64", 300)))


def test_failures_are_named(cp: Any) -> None:
    """Indefinite and singular matrices raise as SciPy does, with the place in the batch."""
    a = positive("float64", 32)
    a[70, 11, 11] = -1
    with pytest.raises(np.linalg.LinAlgError, match=r"^matrix 70: 12-th leading minor"):
        linalg.cholesky(cp.asarray(a))
    a[33, :, 4] = 0
    with pytest.raises(np.linalg.LinAlgError, match=r"^matrix 33: Matrix is singular: diagonal 5 of U"):
        linalg.solve(cp.asarray(a), cp.asarray(random("float64", 32)))
    with pytest.warns(scipy.linalg.LinAlgWarning, match=r"^matrix 33: Diagonal number 5"):
        linalg.lu_factor(cp.asarray(a))
