"""Every answer that kernel files state for long rows is right on a GPU, also those that others take first."""

from typing import Any

import numpy as np
import pytest
from gpu_kernels import compile_ahead, runs_here

import tuner
from tuner.kernel_files.catalog import Catalog
from tuner.kernel_files.source_folder import kernels_root
from tuner.model.plan import Plan
from tuner.problems.lookup import problem_for

pytestmark = pytest.mark.gpu

CATALOG = Catalog.load(search_path=[kernels_root()])
WORKLOADS = (
    ("scan-long:N=8388608", 1),
    ("scan-long:N=100003,dtype=float64,direction=reverse", 3),
    ("scan-flags:N=8388608", 1),
    ("scan-offsets:N=1000000,ends=1001", 1),
    ("linear-recurrence:N=8388608", 1),
    ("linear-recurrence:N=100000,dtype=float64", 3),
    ("tridiag-large:N=65536", 64),
    ("tridiag-large:N=9001,dtype=float64", 5),
    ("tridiag-large:N=1048576", 1),
    ("tridiag-periodic-large:N=65536,dtype=float64", 64),
    ("tridiag-periodic-large:N=9001", 5),
    ("tridiag-several-large:N=65536,K=4", 16),
    ("tridiag-several-large:N=9001,K=2,dtype=complex64", 5),
    ("fft-columns:N=512,W=64", 128),
    ("fft-columns:N=4096,W=64,direction=inverse", 16),
    ("fft-columns:N=8192,W=32", 16),
    ("fft-2d:M=1024,N=1024", 4),
    ("fft-2d:M=3000,N=3000", 1),
    ("fft-long:N=9216", 500),
    ("fft-long:N=10000,dtype=complex128", 500),
    ("fft-long:N=1000000", 5),
    ("fft-any:N=105", 40000),
    ("fft-any:N=343,direction=inverse", 16000),
    ("fft-any:N=520", 8192),
    ("fft-any:N=3000,dtype=complex128", 800),
    ("fft-real:N=30", 300000),
    ("fft-real:N=100,direction=inverse", 100000),
    ("fft-real-long:N=16384", 100),
    ("fft-real-long:N=10000,dtype=float64,direction=inverse", 100),
    ("fft-real-long:N=1048576,dtype=float64", 5),
)


def cases() -> list[Plan]:
    """A plan for each answer of each workload."""
    plans = []
    for text, batch in WORKLOADS:
        asked = CATALOG.workload(text)
        kernel = CATALOG.kernel(asked.kernel)
        workload = kernel.workload(dict(asked.sizes), batch)
        plans += [kernel.plan(workload, answer) for answer in kernel.stated_answers(workload, gpu=None)]
    return plans


CASES = cases()


@pytest.fixture(scope="module")
def _compiled(cp: Any) -> None:
    compile_ahead(cp, CASES)


@pytest.mark.usefixtures("_compiled")
@pytest.mark.parametrize("plan", CASES, ids=lambda plan: f"{plan.workload} {plan.configuration}")
def test_stated_answer_is_right(cp: Any, plan: Plan) -> None:
    """By the problem's own judgement, of all rows."""
    if not runs_here(cp, plan):
        pytest.skip("not for this GPU")
    problem, sizes = problem_for(plan.problem), dict(plan.workload.sizes)
    told = {**sizes, "batch": plan.workload.batch}
    shared = [buffer for buffer in plan.buffers if buffer.role in ("in", "out")]
    inputs = problem.inputs(np, np.random.default_rng(1), shared, told)
    given = [cp.asarray(inputs[buffer.name]) for buffer in shared if buffer.role == "in"]
    kernel = plan.workload.kernel
    told_by_arrays = ("ends",) if kernel.startswith("fft") else ("N", "ends")
    named = {key: value for key, value in sizes.items() if key not in told_by_arrays}
    answer = tuner.apply(kernel, *given, configuration=dict(plan.configuration), **named)
    output = next(buffer.name for buffer in shared if buffer.role == "out")
    found = problem.compare(inputs, {output: answer.get()}, told)
    assert found.ok, str(found)
