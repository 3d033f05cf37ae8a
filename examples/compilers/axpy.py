"""y = a * x + y in Numba; prints PTX of it: python axpy.py sm_90 4."""

import sys

from numba import cuda, float32, int32, types

ARCHITECTURE, WIDTH = sys.argv[1], int(sys.argv[2])


def axpy(y, x, a, n):
    """Add to WIDTH elements of y."""
    first = cuda.blockIdx.x * cuda.blockDim.x * WIDTH + cuda.threadIdx.x
    for k in range(WIDTH):
        i = first + k * cuda.blockDim.x
        if i < n:
            y[i] += a * x[i]


pointer = types.CPointer(float32)
number = int(ARCHITECTURE.removeprefix("sm_"))
ptx, _ = cuda.compile(
    axpy, types.void(pointer, pointer, float32, int32), cc=divmod(number, 10), device=False, abi="numba"
)
print(ptx)
