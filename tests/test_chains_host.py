"""Chains on the host: views, swaps and library stages compute what they should."""

from pathlib import Path

import host_build
import numpy as np
import pytest
from chain_samples import backward_error, dominant, lu_plan, stencil_plan, stencil_reference

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")


@pytest.mark.parametrize("steps", [1, 2, 3, 4])
def test_a_swapped_chain_ends_in_its_output(tmp_path: Path, steps: int) -> None:
    """Of even and odd numbers of steps; the input is as it was, or the run on it would be refused."""
    u = np.random.default_rng(steps).uniform(-1, 1, (1, 64)).astype(np.float32)
    outputs = host_build.run_plan_on_host(stencil_plan(tmp_path, 64, steps), {"u": u})
    np.testing.assert_allclose(outputs["v"], stencil_reference(u, steps), rtol=0, atol=1e-6)


@pytest.mark.parametrize(("by", "beside"), [("own", 0), ("library", 0), ("library", 1)])
def test_a_factorisation_in_place(tmp_path: Path, by: str, beside: int) -> None:
    """Steps on views of one array, the last without what is right of it."""
    a = dominant(64)
    outputs = host_build.run_plan_on_host(lu_plan(tmp_path, by=by, beside=beside), {"A": a})
    assert backward_error(a, outputs["A"]) < 1
