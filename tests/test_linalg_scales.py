"""``tuner.linalg`` holds LAPACK's backward errors at any scale: batched and large kernels on the host."""

from pathlib import Path
from typing import Any

import host_build
import linalg_scales as scales
import numpy as np
import pytest
from fake_linalg import LinalgCupy, linalg_cupy
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
