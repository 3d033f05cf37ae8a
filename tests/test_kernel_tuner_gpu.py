"""Kernel Tuner's two functions on a GPU."""

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tuner.kernel_tuner import run_kernel, tune_kernel
from tuner.model.errors import CompileError, VerificationError

pytestmark = pytest.mark.gpu

N = 1_000_000
ADD = """
__global__ void vector_add(float *c, float *a, float *b, int n) {
    int i = blockIdx.x * block_size_x + threadIdx.x;
    if (i < n) {
        c[i] = a[i] + b[i];
    }
}
"""
FILTER = """
__constant__ float weights[9];  // larger than what is given
__global__ void smooth(float *y, const float *x, int n) {
    extern __shared__ float part[];
    int i = blockIdx.x * block_size_x + threadIdx.x;
    part[threadIdx.x] = i < n ? x[i] : 0.0f;
    __syncthreads();
    if (i > 0 && i < n - 1) {
        float left = threadIdx.x > 0 ? part[threadIdx.x - 1] : x[i - 1];
        float right = threadIdx.x + 1 < block_size_x ? part[threadIdx.x + 1] : x[i + 1];
        y[i] = weights[0] * left + weights[1] * part[threadIdx.x] + weights[2] * right;
    }
}
"""


@pytest.fixture(autouse=True)
def _own_database(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))


@pytest.fixture
def added() -> dict[str, Any]:
    """A vector addition, without what differs between the two functions."""
    rng = np.random.default_rng(1)
    a, b = (rng.standard_normal(N).astype(np.float32) for _ in range(2))
    arguments = [np.zeros_like(a), a, b, np.int32(N)]
    return {"kernel_name": "vector_add", "kernel_source": ADD, "problem_size": N, "arguments": arguments}


def test_a_vector_addition_is_tuned_and_checked(added: dict[str, Any]) -> None:
    """All configurations are right; the best is the fastest."""
    _, a, b, _ = added["arguments"]
    sizes = [64, 128, 256, 1024]
    answer = [a + b, None, None, None]
    results, env = tune_kernel(**added, tune_params={"block_size_x": sizes}, answer=answer, quiet=True)
    assert [one["block_size_x"] for one in results] == sizes
    assert all("time" in one for one in results), results
    assert 0.001 < env["best_config"]["time"] < 1
    assert not env["modelled"]


def test_run_kernel_returns_what_the_kernel_left(added: dict[str, Any]) -> None:
    """All arguments, in order; the caller's own arrays are left alone."""
    c, a, b, n = run_kernel(**added, params={"block_size_x": 256})
    np.testing.assert_allclose(c, added["arguments"][1] + added["arguments"][2])
    np.testing.assert_array_equal(a, added["arguments"][1])
    assert b.dtype == np.float32
    assert n == N
    assert not added["arguments"][0].any()
    with pytest.raises(CompileError, match="nonsense"):
        run_kernel(**added | {"kernel_source": ADD.replace("a[i]", "nonsense")}, params={"block_size_x": 64})


def test_constant_and_shared_memory() -> None:
    """A symbol is filled, and dynamic shared memory has the size of every configuration."""
    rng = np.random.default_rng(2)
    x, weights = rng.standard_normal(N).astype(np.float32), np.array([0.25, 0.5, 0.25], np.float32)
    expected = np.zeros_like(x)
    expected[1:-1] = 0.25 * x[:-2] + 0.5 * x[1:-1] + 0.25 * x[2:]
    given: dict[str, Any] = {
        "kernel_name": "smooth",
        "kernel_source": FILTER,
        "problem_size": N,
        "arguments": [np.zeros_like(x), x, np.int32(N)],
        "cmem_args": {"weights": weights},
        "smem_args": {"size": lambda p: p["block_size_x"] * 4},
    }
    y, _, _ = run_kernel(**given, params={"block_size_x": 128})
    np.testing.assert_allclose(y, expected, atol=1e-6)
    params = {"block_size_x": [128, 512]}
    results, _ = tune_kernel(**given, tune_params=params, answer=[expected, None, None], quiet=True)
    assert all("time" in one for one in results), results


def test_wrong_answers_are_failures(added: dict[str, Any]) -> None:
    """Of one configuration they are in the results, of all they raise; ``verify`` is asked."""
    _, a, b, _ = added["arguments"]
    source = ADD.replace("a[i] + b[i]", "a[i] + b[i] + (block_size_x == 64 ? 1 : 0)")
    given = added | {"kernel_source": source, "tune_params": {"block_size_x": [64, 128]}, "quiet": True}
    results, env = tune_kernel(**given, answer=[a + b, None, None, None])
    assert [one.get("__error__") for one in results] == ["ErrorConfig", None]
    assert "answer[0]" in results[0]["error_detail"]
    assert env["best_config"]["block_size_x"] == 128

    seen: list[float] = []

    def verify(answer: Any, outputs: Any, atol: float) -> bool:
        del answer
        seen.append(atol)
        return bool(np.allclose(outputs[0], a + b + 5, atol=atol))

    with pytest.raises(VerificationError, match="verify returned False"):
        tune_kernel(**given, answer=[a + b, None, None, None], verify=verify, atol=0.5)
    assert set(seen) == {0.5}


def test_generated_sources_and_accumulators() -> None:
    """A function makes the source; arrays that a kernel adds to begin anew for every check."""

    def generate(params: dict[str, Any]) -> str:
        return f"""
        __global__ void count(int *total, const int *x, int n) {{
            int i = blockIdx.x * {params["block_size_x"]} + threadIdx.x;
            if (i < n) {{ atomicAdd(total, x[i]); }}
        }}
        """

    x = np.ones(10_000, np.int32)
    arguments = [np.zeros(1, np.int32), x, np.int32(x.size)]
    results, _ = tune_kernel(
        *("count", generate, x.size, arguments, {"block_size_x": [64, 256]}),
        lang="CUDA",
        answer=[np.array([10_000], np.int32), None, None],
        quiet=True,
    )
    assert all("time" in one for one in results), results
