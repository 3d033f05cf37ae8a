"""Kernels that are chains, applied to arrays: every step in order, in one stream, on the caller's arrays."""

from pathlib import Path

import numpy as np
import pytest
from chain_samples import LU, STENCIL
from fake_apply import fake_bench
from fake_cupy import DeviceArray, Kernel

from tuner.errors import InputError


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


def test_libraries_are_not_called(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """A kernel with a stage of a library is refused by name."""
    (tmp_path / "chain.cu").write_text("")
    (tmp_path / "lu.toml").write_text(LU)
    bench = fake_bench(monkeypatch, tmp_path)
    bench.cp.kernels["panel"] = Kernel(lambda *_: None, 1e-3)
    with pytest.raises(InputError, match="stage rows is trsm of a library, and tuner"):
        bench.apply("lu-steps", bench.array(1, 64, 64), configuration={"B": 16, "by": "library", "beside": 0})
