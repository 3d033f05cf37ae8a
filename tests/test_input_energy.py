"""Joules say which inputs they are of, and whether random ones would take others."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from tuning_runs import CallbackListener, FormulaMeasurer

from tuner.database.runs import Store
from tuner.kernel_files.catalog import Catalog
from tuner.model.plan import Plan
from tuner.model.trial import Measurement, Trial
from tuner.report.run_report import inputs
from tuner.search.request import SearchRequest
from tuner.search.setup import open_setup
from tuner.search.tuning import tune

KERNEL = """
kernel = { name = "scaling", source = "scaling.cu", entry = "scale" }
problem.sizes.N = [65536]
problem.reference.y = "a * x + places"
[arguments]
y = "out float32[N]"
x = 'in float32[N] = file("own.npz", "x")'
places = 'in int32[N] = file("own.npz", "places")'
a = "in float32[N] = normal(0, 1)"
[tunables]
B = [64, 128, 256]
[launch]
grid = "ceil_div(N, B)"
block = "B"
"""
SOURCE = """__global__ void scale(float* y, const float* x, const int* places, const float* a) {
  int i = blockIdx.x * blockDim.x + threadIdx.x; if (i < 65536) y[i] = a[i] * x[i] + places[i]; }"""


class ByInputs(FormulaMeasurer):
    """Takes less power with numbers of a file."""

    def __init__(self, share: float) -> None:
        super().__init__()
        self._share, self.drawn = share, 0

    def measure(self, trial: Trial, plans: Sequence[Plan], target: Any = None) -> Measurement:
        """Places are those of the file in any case."""
        del trial, target
        by_name = {buffer.name: buffer.input for buffer in plans[0].buffers}
        assert by_name["places"] is not None
        self.drawn += by_name["x"] is None
        self.watts = 200.0 if by_name["x"] is None else 200.0 * self._share
        return self.measured([1e-3], 1e-3)


@pytest.mark.parametrize("share", [0.7, 1.0])
@pytest.mark.parametrize("objective", ["energy", "time"])
def test_joules_with_own_inputs_are_held_against_random_ones(
    tmp_path: Path, share: float, objective: str
) -> None:
    """A notice where they differ by more than the interval; the report names file and key of each input."""
    (tmp_path / "kernel.toml").write_text(KERNEL)
    (tmp_path / "scaling.cu").write_text(SOURCE)
    np.savez(tmp_path / "own.npz", x=np.zeros(65536, np.float32), places=np.arange(65536, dtype=np.int32))
    request = SearchRequest(workloads=("scaling:N=65536",), policy="exhaustive", objective=objective)
    measurer = ByInputs(share)
    with Store(tmp_path / "tuner.db") as store, open_setup("sim:h200", request) as setup:
        catalog = Catalog.load((tmp_path / "kernel.toml",))
        played = replace(setup, measurer=measurer)
        outcome = tune(played, request, catalog, store, CallbackListener(), resume=False)

    told = [one for one in outcome.notices if one.startswith("inputs: ")]
    differs = objective == "energy" and share < 1.0
    assert (len(told), measurer.drawn) == (differs, 3 * (objective == "energy"))
    assert all("with own.npz a round takes -30.0 ± " in one for one in told)
    (line,) = inputs(outcome.document)
    assert all(f'{name} file({tmp_path}/own.npz ["{name}"])' in line for name in ("x", "places"))
    assert "a normal(0, 1)" in line
