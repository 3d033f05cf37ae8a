"""``tuner.linalg`` holds LAPACK's backward errors at any scale: batched and large kernels on the host."""

from pathlib import Path
from typing import Any

import host_build
import linalg_scales as scales
import numpy as np
import pytest
from fake_linalg import HostCompiler, LinalgCupy, linalg_cupy
from fake_linalg_large import HostLibraries

from tuner import linalg

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

ORDERS = (5, 21, 140)  # one thread a matrix, several, and beyond the batched kernels


@pytest.fixture
def cp(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> LinalgCupy:
    monkeypatch.setattr("tuner.devices.cuda.code.GpuLibraries", HostLibraries)
    monkeypatch.setattr("tuner.linalg.products.GpuLibraries", HostLibraries)
    return linalg_cupy(monkeypatch, tmp_path)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
@pytest.mark.parametrize("n", ORDERS)
@pytest.mark.parametrize("name", list(scales.LAWS))
def test_lapacks_errors(cp: LinalgCupy, name: str, n: int, dtype: str) -> None:
    """Backward errors are LAPACK's, whatever the scale of matrices, columns, rows and pivots."""

    def called(function: str, *arrays: Any, **way: Any) -> Any:
        found = getattr(linalg, function)(*map(cp.asarray, arrays), **way)
        return [np.asarray(one) for one in found] if isinstance(found, tuple) else np.asarray(found)

    scales.LAWS[name](called, n, dtype)


@pytest.mark.parametrize(("m", "n", "dtype"), [(150, 1, "float64"), (150, 21, "float32")])
def test_errors_of_tall_matrices(cp: LinalgCupy, m: int, n: int, dtype: str) -> None:
    """They are those of reflections, whatever the condition and the scale."""

    def called(function: str, *arrays: Any, **way: Any) -> Any:
        return [np.asarray(one) for one in getattr(linalg, function)(*map(cp.asarray, arrays), **way)]

    scales.tall_law(called, m, n, dtype)


@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_reflections_are_for_what_needs_them(cp: LinalgCupy, dtype: str) -> None:
    """Tall matrices of any condition are factored without, one with a column of zeros is not."""
    matrices = scales.tall(150, 9, dtype)
    for a in matrices[: scales.CONDITIONS]:
        linalg.qr(cp.asarray(a), "economic")
    assert not any("qr" in entry for entry in HostCompiler.compiled)
    linalg.qr(cp.asarray(np.where(np.arange(9) == 1, 0, matrices[0])), "economic")
    assert any("qr" in entry for entry in HostCompiler.compiled)
