"""The build under AddressSanitizer and UndefinedBehaviorSanitizer, in a process of its own."""

from typing import Any

import host_build
import numpy as np
import pytest
from host_build import ADDRESSES, HostRunError

from tuner.model.plan import Source

pytestmark = pytest.mark.skipif(host_build.COMPILER is None, reason="needs g++")

KERNELS = Source(
    "kernels.cu",
    """
// Reverses; reads and writes `ahead` elements too far in one of its arrays.
template <int L>
__global__ void reversed(const float* x, float* y, int where, int ahead) {
    __shared__ float first[L], second[L];
    extern __shared__ float third[];
    float own[2] = {x[threadIdx.x], 0.0f};
    float* const rooms[] = {first, second, third};
    for (float* room : rooms) room[threadIdx.x] = own[0];
    __syncthreads();
    float* const chosen[] = {first, second, third, y, own};
    if (threadIdx.x == 0 && where < 5) chosen[where][ahead] = 0.0f;
    if (where == 5) y[threadIdx.x] = x[threadIdx.x + ahead];
    if (where == 6) y[threadIdx.x] = float(1 << ahead);
    if (where == 7) __syncwarp(2u << threadIdx.x);
    __syncthreads();
    if (where > 7) y[threadIdx.x] = second[L - 1 - threadIdx.x];
}
""",
)


def reversed_(where: int, ahead: int = 0) -> Any:
    x, y = np.arange(32, dtype=np.float32), np.full(32, np.nan, np.float32)
    x.flags.writeable = False
    host_build.run(KERNELS, "reversed<32>", 1, 32, 128, [x, y, where, ahead], flags=ADDRESSES)
    return y


@pytest.mark.parametrize(
    ("where", "ahead", "trouble"),
    [
        (0, 32, "global-buffer-overflow; WRITE of size 4; .*kernels.cu:12; .* variable 'first'"),
        (1, 32, "global-buffer-overflow; WRITE of size 4; .*kernels.cu:12; .* variable 'second'"),
        (2, 32, "heap-buffer-overflow; WRITE of size 4; .*0 bytes to the right of 128-byte region"),
        (2, -1, "heap-buffer-overflow"),
        (3, 32, "heap-buffer-overflow; WRITE of size 4; .*0 bytes to the right of 128-byte region"),
        (4, 2, "stack-buffer-overflow; WRITE of size 4"),
        (5, 1, "heap-buffer-overflow; READ of size 4; .*0 bytes to the right of 128-byte region"),
        (6, 32, "kernels.cu:14:.* runtime error: shift exponent 32 is too large"),
        (7, 0, "a lane calls a warp function whose mask does not name it"),
    ],
)
def test_what_the_sanitizers_find_names_kernel_and_line(where: int, ahead: int, trouble: str) -> None:
    """One element beyond any array, shared, own or given, fails the launch; the next one runs as before."""
    with pytest.raises(HostRunError, match=rf"kernels.cu, reversed<32>: .*{trouble}"):
        reversed_(where, ahead)
    np.testing.assert_array_equal(reversed_(8), np.arange(32)[::-1])


def test_inputs_stay_as_they_are() -> None:
    """An array that is not writeable must come back unchanged from the other process too."""
    x, y = np.zeros(32, np.float32), np.zeros(32, np.float32)
    y.flags.writeable = False
    with pytest.raises(HostRunError, match="read-only"):
        host_build.run(KERNELS, "reversed<32>", 1, 32, 128, [x + 1, y, 8, 0], flags=ADDRESSES)
