"""Inputs on the GPU, their answers in float64 by independent means, and the error of what a kernel left.

Tridiagonal systems have a dominance margin of at least 0.05: ``|b| = |a| + |c| + 0.05 + u``, u uniform in
[0, 1), random signs. Scans are of uniform numbers in [-1, 1), transforms of complex normal numbers.
"""

from dataclasses import dataclass
from functools import cache
from typing import Any

MARGIN = 0.05

_THOMAS = r"""
extern "C" __global__ void thomas(const float* a, const float* b, const float* c, const float* d, double* x,
                                  double* upper, int n, long long batch) {
    const long long system = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (system >= batch) return;
    const long long first = system * n;
    double c_before = 0, d_before = 0;
    for (int i = 0; i < n; ++i) {
        const double below = i ? a[first + i] : 0, pivot = b[first + i] - below * c_before;
        upper[i * batch + system] = c_before = (i + 1 < n ? c[first + i] : 0) / pivot;
        x[first + i] = d_before = (d[first + i] - below * d_before) / pivot;
    }
    for (int i = n - 2; i >= 0; --i) x[first + i] -= upper[i * batch + system] * x[first + i + 1];
}
"""


@dataclass(frozen=True)
class Data:
    """One problem on the device.

    Attributes:
        family: ``scan``, ``tridiagonal`` or ``fft``.
        n: length of a row.
        inputs: arrays of shape (batch, n), in the order of the kernels' arguments.
        output: where every contender leaves its answer.
        reference: the answer in float64 or complex128.
        scale: of each row, what its error is divided by.
    """

    family: str
    n: int
    inputs: tuple[Any, ...]
    output: Any
    reference: Any
    scale: Any

    @property
    def batch(self) -> int:
        """Rows."""
        return int(self.output.shape[0])

    def poison(self, cp: Any) -> None:
        """Fill the output with NaN."""
        self.output.view(cp.uint8).fill(0xFF)

    def error(self, cp: Any, answer: Any = None) -> float:
        """Worst error of a row; infinity where one is not finite.

        Scan and tridiagonal: largest error by the row's largest value. FFT: relative L2.
        """
        given = self.output if answer is None else answer
        if self.family == "fft":
            errors = cp.sqrt(_kernel(cp, _SQUARES)(given, self.reference, axis=1)) / self.scale
        else:
            errors = _kernel(cp, _LARGEST)(given, self.reference, axis=1) / self.scale
        return float(cp.where(cp.isfinite(errors), errors, cp.inf).max())


_SQUARES = ("complex64 y, complex128 right", "norm(complex<double>(y) - right)", "a + b", "0")
_LARGEST = ("float32 y, float64 right", "deviation(y, right)", "max(a, b)", "0")
_PREAMBLE = r"""
__device__ double deviation(float y, double right) {
    const double d = fabs(double(y) - right);
    return d <= 1e300 ? d : __longlong_as_double(0x7ff0000000000000);  // max() drops NaN
}
"""


@cache
def _kernel(cp: Any, parts: tuple[str, str, str, str]) -> Any:
    """One pass over answer and reference, a result for each row."""
    parameters, value, joined, identity = parts
    return cp.ReductionKernel(
        parameters, "float64 z", value, joined, "z = a", identity, "row_error", preamble=_PREAMBLE
    )


def allowed_error(family: str, n: int) -> float:
    """Largest error that the kernels' targets allow."""
    return 1e-7 * max(1, n.bit_length() - 1) if family == "fft" else 1e-6


def make(cp: Any, family: str, n: int, elements: int, seed: int = 1) -> Data:
    """Random inputs of ``elements`` elements in rows of ``n``, and their answer."""
    shape = (elements // n, n)
    rng = cp.random.Generator(cp.random.Philox4x3210(seed))

    def uniform() -> Any:
        values = rng.random(shape, dtype=cp.float32)
        values *= 2
        values -= 1
        return values

    if family == "scan":
        x = uniform()
        sums = cp.cumsum(x, axis=1, dtype=cp.float64)
        return Data(family, n, (x,), cp.empty_like(x), sums, abs(sums).max(axis=1))
    if family == "fft":
        z = cp.empty(shape, dtype=cp.complex64)
        z.real = rng.standard_normal(shape, dtype=cp.float32)
        z.imag = rng.standard_normal(shape, dtype=cp.float32)
        transform = cp.fft.fft(z.astype(cp.complex128), axis=1)
        return Data(family, n, (z,), cp.empty_like(z), transform, cp.linalg.norm(transform, axis=1))
    a, c, d = uniform(), uniform(), uniform()
    a[:, 0] = 0
    c[:, -1] = 0
    b = (abs(a) + abs(c) + cp.float32(MARGIN) + rng.random(shape, dtype=cp.float32)) * cp.where(
        rng.random(shape, dtype=cp.float32) < 0.5, cp.float32(-1), cp.float32(1)
    )
    solution = _solution(cp, (a, b, c, d))
    return Data(family, n, (a, b, c, d), cp.empty_like(a), solution, abs(solution).max(axis=1))


def _solution(cp: Any, rows: tuple[Any, ...]) -> Any:
    """Tridiagonal systems by the Thomas algorithm in float64, a thread for each."""
    batch, n = rows[0].shape
    x, upper = cp.empty((batch, n), cp.float64), cp.empty((n, batch), cp.float64)
    thomas = cp.RawKernel(_THOMAS, "thomas")
    thomas((-(-batch // 128),), (128,), (*rows, x, upper, cp.int32(n), cp.int64(batch)))
    return x
