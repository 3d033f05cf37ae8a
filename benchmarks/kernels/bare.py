"""Bare kernels: they move the bytes of a family and do nothing else. The fastest of several shapes counts."""

from collections.abc import Callable
from functools import partial
from typing import Any

_SOURCE = r"""
template <int reads, int V>
__global__ void __launch_bounds__(1024)
    move(const float4* a, const float4* b, const float4* c, const float4* d, float4* x, long long count) {
    const long long first = blockIdx.x * (long long)(blockDim.x * V) + threadIdx.x;
    float4 sum[V];
#pragma unroll
    for (int v = 0; v < V; ++v) {
        const long long at = first + v * blockDim.x;
        if (at >= count) continue;
        sum[v] = a[at];
        if (reads > 1) {
            const float4 p = b[at], q = c[at], r = d[at];
            sum[v].x += p.x + q.x + r.x, sum[v].y += p.y + q.y + r.y;
            sum[v].z += p.z + q.z + r.z, sum[v].w += p.w + q.w + r.w;
        }
    }
#pragma unroll
    for (int v = 0; v < V; ++v)
        if (first + v * blockDim.x < count) x[first + v * blockDim.x] = sum[v];
}
"""
_VECTORS = (1, 2, 4)
_THREADS = (128, 256, 512, 1024)


def bare(cp: Any, family: str, inputs: tuple[Any, ...], output: Any) -> dict[str, Callable[[], None]]:
    """Launches of every shape by name, e.g. ``bare L=256 V=2``, for the arrays of one problem."""
    reads = 4 if family == "tridiagonal" else 1
    names = {V: f"move<{reads}, {V}>" for V in _VECTORS}
    module = cp.RawModule(code=_SOURCE, options=("--std=c++17",), name_expressions=tuple(names.values()))
    count = output.nbytes // 16
    arrays = (*inputs, *[inputs[0]] * (4 - len(inputs)))
    launches: dict[str, Callable[[], None]] = {}
    for V, name in names.items():
        function = module.get_function(name)
        for L in _THREADS:
            grid = (-(-count // (L * V)),)
            launches[f"bare L={L} V={V}"] = partial(function, grid, (L,), (*arrays, output, cp.int64(count)))
    return launches
