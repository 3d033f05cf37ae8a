// Every row of an image of H x W convolved with 2 R + 1 taps; beyond its ends a row is zero. A block of X x Y threads
// makes Y rows of X * P results through shared memory, a thread P of them, X apart.
#pragma tuner problem(H = 1..268435456, W = 1..268435456, R = [8, 2, 4, 16])
#pragma tuner input image: float32[H, W]
#pragma tuner constant taps: float32[2 * R + 1]
#pragma tuner output result: float32[H, W]
#pragma tuner check function "reference.py:rows"
#pragma tuner constraint 64 <= X * Y <= 512
#pragma tuner derived DOWN = ceil_div(H, Y)
#pragma tuner derived LAYERS = ceil_div(DOWN, 65535)
#pragma tuner toml problem.tolerance = 1e-4
#pragma tuner toml kernel.description = "Rows of an image convolved with the taps of a filter"
#pragma tuner toml kernel.family = "convolution"
#pragma tuner toml work.bytes = "8 * H * W"
#pragma tuner toml work.operations = "(4 * R + 2) * H * W"
#pragma tuner toml work.rate = "GB/s"
#pragma tuner toml work.rate_units = "8 * H * W"

#ifndef R
#define R 8
#endif
__constant__ float taps[2 * R + 1];

#pragma tuner erange X: 16, 256, 2
#pragma tuner erange Y: 1, 16, 2
#pragma tuner erange P: 1, 8, 2
#pragma tuner launch grid(ceil_div(W, X * P), ceil_div(DOWN, LAYERS), LAYERS) block(X, Y)
template <int X = 16, int Y = 4, int P = 8>
__global__ void convolution_rows(const float* __restrict__ image, float* __restrict__ result, int H, int W)
{
    __shared__ float part[Y][X * P + 2 * R];
    const int left = blockIdx.x * X * P, row = (blockIdx.z * gridDim.y + blockIdx.y) * Y + threadIdx.y;
#pragma unroll
    for (int i = threadIdx.x; i < X * P + 2 * R; i += X) {
        const int column = left + i - R;
        part[threadIdx.y][i] = row < H && column >= 0 && column < W ? image[(size_t)row * W + column] : 0.0f;
    }
    __syncthreads();
#pragma unroll
    for (int p = 0; p < P; ++p) {
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i <= 2 * R; ++i) sum += taps[2 * R - i] * part[threadIdx.y][p * X + threadIdx.x + i];
        const int column = left + p * X + threadIdx.x;
        if (row < H && column < W) result[(size_t)row * W + column] = sum;
    }
}
