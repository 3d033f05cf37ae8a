"""Kernels that are chains, applied to arrays: every step in order, in one stream, on the caller's arrays."""

from pathlib import Path

import numpy as np
import pytest
from chain_samples import LU, STENCIL
from fake_apply import fake_bench
from fake_cupy import DeviceArray, Kernel
from fake_linalg_large import HostLibraries


def stencil(u: DeviceArray, v: DeviceArray, _: int, step: int) -> None:
    v[...] = 2 * u + step


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_steps_with_swapped_arrays(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, steps: int) -> None:
    """The output holds what the last step wrote; the array in between is scratch memory of the call."""
    (tmp_path / "chain.cu").write_text("")
    (tmp_path / "stencil.toml").write_text(STENCIL)
    bench = fake_bench(monkeypatch, tmp_path)
    bench.cp.kernels["stencil"] = Kernel(stencil, 1e-3)
    u = bench.array(1, 64)
    right = np.array(u)
    for step in range(steps):
        right = 2 * right + step
    before = np.array(u)
    for _ in range(4):  # the later ones are graphs
        found = bench.apply("stencil-steps", u, S=steps, configuration="default")
        np.testing.assert_array_equal(found, right)
    np.testing.assert_array_equal(u, before)


def panel(part: DeviceArray, n: int, below: int, columns: int) -> None:
    """Factors a block of columns of a column-major matrix, from its diagonal on."""
    block = np.lib.stride_tricks.as_strided(part, (below, columns), (part.itemsize, n * part.itemsize))
    for k in range(columns):
        block[k + 1 :, k] /= block[k, k]
        block[k + 1 :, k + 1 :] -= np.outer(block[k + 1 :, k], block[k, k + 1 :])


@pytest.mark.parametrize("beside", [0, 1])
def test_stages_of_libraries(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, beside: int) -> None:
    """They run in their order and streams, one by one and, of a plan, as a graph."""
    (tmp_path / "chain.cu").write_text("")
    (tmp_path / "lu.toml").write_text(LU)
    monkeypatch.setattr("tuner.devices.cuda.code.GpuLibraries", HostLibraries)
    bench = fake_bench(monkeypatch, tmp_path)
    bench.cp.kernels["panel"] = Kernel(panel, 1e-3)
    given = np.random.default_rng(1).uniform(-1, 1, (1, 64, 64)).astype("float32") + 64 * np.eye(64)
    A = bench.array(1, 64, 64)
    chosen = {"B": 16, "by": "library", "beside": beside}
    plan = bench.plan("lu-steps", A, configuration=chosen)
    for planned in (False, True):
        A[...] = given
        if planned:
            plan()
        else:
            bench.apply("lu-steps", A, configuration=chosen)
        lower, upper = np.tril(A[0].T, -1) + np.eye(64), np.triu(A[0].T)
        np.testing.assert_allclose(lower @ upper, given[0].T, rtol=1e-5, atol=1e-4)
    assert bench.cp.replays == 1
