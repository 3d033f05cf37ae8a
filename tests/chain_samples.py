"""Kernels that are chains: a stencil that swaps its arrays, and a factorisation in place with libraries."""

from pathlib import Path

import numpy as np
import numpy.typing as npt

from tuner.kernel_files.catalog import load_kernel_file
from tuner.kernel_files.kernel_file import KernelFile
from tuner.model.plan import Plan

STENCIL_CODE = """
__global__ void stencil(const float* u, float* v, int n, int step) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= n) return;
    const float left = u[i == 0 ? 0 : i - 1], right = u[i == n - 1 ? i : i + 1];
    v[i] = 0.25f * left + 0.5f * u[i] + 0.25f * right + 0.001f * step;
}
"""

STENCIL = """
[kernel]
name = "stencil-steps"
source = "chain.cu"
entry = "stencil"
[problem.sizes]
N = [64, 65536, 1048576]
S = [1, 2, 3, 4, 500, 10001]
[[argument]]
buffer = "u"
dtype = "float32"
shape = ["batch", "N"]
role = "in"
[[argument]]
buffer = "v"
dtype = "float32"
shape = ["batch", "N"]
role = "out"
[[argument]]
scalar = "n"
dtype = "int32"
value = "N"
[[argument]]
scalar = "step"
dtype = "int32"
value = "step"
[tunables]
B = [32, 256]
[launch]
repeat = "S"
swap = [["u", "v"]]
grid = "ceil_div(N, B)"
block = "B"
[work]
bytes = "8 * N * S * batch"
operations = "4 * N * S * batch"
[resources]
registers = 16
[occupancy]
min = 0
"""

LU_CODE = """
// A is column-major, n x n; a block of B columns is factored without pivoting, from its own diagonal on.
__global__ void panel(float* A, int n, int below, int B) {
    for (int k = 0; k < B; ++k) {
        __syncthreads();
        for (int i = k + 1 + threadIdx.x; i < below; i += blockDim.x) {
            const float factor = A[i + k * n] / A[k + k * n];
            A[i + k * n] = factor;
            for (int j = k + 1; j < B; ++j) A[i + j * n] -= factor * A[k + j * n];
        }
    }
}

// rows of U right of the block: L is unit lower and stands in the block
__global__ void rows(const float* L, float* U, int n, int columns, int B) {
    const int j = blockIdx.x * blockDim.x + threadIdx.x;
    if (j >= columns) return;
    for (int k = 0; k < B; ++k)
        for (int i = k + 1; i < B; ++i) U[i + j * n] -= L[i + k * n] * U[k + j * n];
}

__global__ void update(const float* L, const float* U, float* C, int n, int left, int B) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y;
    if (i >= left) return;
    float sum = 0;
    for (int k = 0; k < B; ++k) sum += L[i + k * n] * U[k + j * n];
    C[i + j * n] -= sum;
}
"""

LU = """
[kernel]
name = "lu-steps"
source = "chain.cu"
[problem.sizes]
N = [64, 512]
[[argument]]
buffer = "A"
dtype = "float32"
shape = ["batch", "N", "N"]
role = "inout"
[[argument]]
scalar = "n"
dtype = "int32"
value = "N"
[[argument]]
scalar = "below"
dtype = "int32"
value = "N - k * B"
[[argument]]
scalar = "left"
dtype = "int32"
value = "N - (k + 1) * B"
[[argument]]
scalar = "width"
dtype = "int32"
value = "B"
[tunables]
B = [16, 32]
by = ["own", "library"]
beside = [0, 1]
[constraints]
rules = ["by == 'library' or beside == 0"]
[loop.columns]
repeat = "N // B"
index = "k"
[[stage]]
name = "panel"
loop = "columns"
entry = "panel"
grid = 1
block = 256
arguments = [{ buffer = "A", offset = "k * B * (N + 1)" }, "n", "below", "width"]
after = ["update@-1"]
[[stage]]
name = "rows"
loop = "columns"
entry = "rows"
grid = "ceil_div(N - (k + 1) * B, 64)"
block = 64
when = "by == 'own' and (k + 1) * B < N"
arguments = [
    { buffer = "A", offset = "k * B * (N + 1)" },
    { buffer = "A", offset = "k * B * (N + 1) + B * N" },
    "n", "left", "width",
]
[[stage]]
name = "update"
loop = "columns"
entry = "update"
grid = ["ceil_div(N - (k + 1) * B, 64)", "N - (k + 1) * B"]
block = 64
when = "by == 'own' and (k + 1) * B < N"
arguments = [
    { buffer = "A", offset = "k * B * (N + 1) + B" },
    { buffer = "A", offset = "k * B * (N + 1) + B * N" },
    { buffer = "A", offset = "(k + 1) * B * (N + 1)" },
    "n", "left", "width",
]
[[stage]]
name = "rows"
loop = "columns"
library = "trsm"
when = "by == 'library'"
stream = "beside"
after = ["panel"]
fill = "lower"
unit = true
m = "B"
n = "N - (k + 1) * B"
a = { buffer = "A", offset = "k * B * (N + 1)", ld = "N" }
b = { buffer = "A", offset = "k * B * (N + 1) + B * N", ld = "N" }
[[stage]]
name = "update"
loop = "columns"
library = "gemm"
when = "by == 'library'"
stream = "beside"
m = "N - (k + 1) * B"
n = "N - (k + 1) * B"
k = "B"
alpha = -1
beta = 1
a = { buffer = "A", offset = "k * B * (N + 1) + B", ld = "N" }
b = { buffer = "A", offset = "k * B * (N + 1) + B * N", ld = "N" }
c = { buffer = "A", offset = "(k + 1) * B * (N + 1)", ld = "N" }
[work]
bytes = "8 * N * N * batch"
operations = "2 * N ** 3 // 3 * batch"
[resources]
registers = 32
[occupancy]
min = 0
"""


def load(folder: Path, text: str, code: str) -> KernelFile:
    """The kernel of some texts."""
    folder.mkdir(exist_ok=True)
    (folder / "chain.cu").write_text(code)
    (folder / "kernel.toml").write_text(text)
    return load_kernel_file(folder / "kernel.toml")


def stencil_plan(folder: Path, n: int, steps: int, block: int = 32) -> Plan:
    """The stencil, so many steps of it."""
    kernel = load(folder, STENCIL, STENCIL_CODE)
    workload = kernel.workload({"N": n, "S": steps})
    return kernel.plan(workload, kernel.configuration(workload, {"B": block}))


def lu_plan(folder: Path, n: int = 64, block: int = 16, by: str = "own", beside: int = 0) -> Plan:
    """LU without pivoting, by own kernels or by those of cuBLAS, in one stream or two."""
    kernel = load(folder, LU, LU_CODE)
    workload = kernel.workload({"N": n})
    return kernel.plan(workload, kernel.configuration(workload, {"B": block, "by": by, "beside": beside}))


def stencil_reference(u: npt.NDArray[np.float32], steps: int) -> npt.NDArray[np.float64]:
    """What the stencil makes of rows, in float64."""
    v = u.astype(np.float64)
    for step in range(steps):
        edged = np.pad(v, ((0, 0), (1, 1)), mode="edge")
        v = 0.25 * edged[:, :-2] + 0.5 * v + 0.25 * edged[:, 2:] + 0.001 * step
    return v


def dominant(n: int) -> npt.NDArray[np.float32]:
    """A matrix that needs no pivots, column-major, as the only one of a batch."""
    a = np.random.default_rng(0).uniform(-1, 1, (n, n)).astype(np.float32)
    return (a + n * np.eye(n, dtype=np.float32)).reshape(1, n, n)


def backward_error(a: npt.NDArray[np.float32], factored: npt.NDArray[np.float32]) -> float:
    """|A - L U| by n u |A|, of column-major matrices."""
    n = a.shape[-1]
    whole, lu = a.reshape(n, n).T.astype(np.float64), factored.reshape(n, n).T.astype(np.float64)
    product = (np.tril(lu, -1) + np.eye(n)) @ np.triu(lu)
    return float(np.linalg.norm(whole - product) / (n * 2.0**-24 * np.linalg.norm(whole)))
