// Every column of an image of H x W convolved with 2 R + 1 taps; beyond its ends a column is zero. A block of X x Y
// threads makes X columns of Y * P results through shared memory, a thread P of them: Y apart and each read from there
// (ORDER strided), or side by side, so that what is read serves all of them (ORDER window).
#pragma tuner problem(H = 1..268435456, W = 1..268435456, R = [8, 2, 4, 16])
#pragma tuner input image: float32[H, W]
#pragma tuner constant taps: float32[2 * R + 1]
#pragma tuner output result: float32[H, W]
#pragma tuner check function "reference.py:columns"
#pragma tuner constraint 64 <= X * Y <= 512
#pragma tuner constraint X * (Y * P + 2 * R) <= 12288
#pragma tuner derived DOWN = ceil_div(H, Y * P)
#pragma tuner derived LAYERS = ceil_div(DOWN, 65535)
#pragma tuner toml problem.tolerance = 1e-4
#pragma tuner toml kernel.description = "Columns of an image convolved with the taps of a filter"
#pragma tuner toml kernel.family = "convolution"
#pragma tuner toml work.bytes = "8 * H * W"
#pragma tuner toml work.operations = "(4 * R + 2) * H * W"
#pragma tuner toml work.rate = "GB/s"
#pragma tuner toml work.rate_units = "8 * H * W"

#ifndef R
#define R 8
#endif
__constant__ float taps[2 * R + 1];

#pragma tuner erange X: 16, 128, 2
#pragma tuner erange Y: 2, 32, 2
#pragma tuner erange P: 1, 16, 2
#pragma tuner launch grid(ceil_div(W, X), ceil_div(DOWN, LAYERS), LAYERS) block(X, Y)
template <int X = 16, int Y = 8, int P = 8>
__global__ void convolution_columns(const float* __restrict__ image, float* __restrict__ result, int H, int W)
{
    __shared__ float part[Y * P + 2 * R][X];
    const int column = blockIdx.x * X + threadIdx.x, top = (blockIdx.z * gridDim.y + blockIdx.y) * Y * P;
#pragma unroll
    for (int i = threadIdx.y; i < Y * P + 2 * R; i += Y) {
        const int row = top + i - R;
        part[i][threadIdx.x] = column < W && row >= 0 && row < H ? image[(size_t)row * W + column] : 0.0f;
    }
    __syncthreads();
    if (column >= W) return;
#pragma tuner select ORDER
#pragma tuner case strided
#pragma unroll
    for (int p = 0; p < P; ++p) {
        const int line = p * Y + threadIdx.y;
        float sum = 0.0f;
#pragma unroll
        for (int i = 0; i <= 2 * R; ++i) sum += taps[2 * R - i] * part[line + i][threadIdx.x];
        if (top + line < H) result[(size_t)(top + line) * W + column] = sum;
    }
#pragma tuner case window
    const int first = threadIdx.y * P;
    float sum[P] = {};
#pragma unroll
    for (int i = 0; i < P + 2 * R; ++i) {
        const float value = part[first + i][threadIdx.x];
#pragma unroll
        for (int p = 0; p < P; ++p)
            if (i >= p && i - p <= 2 * R) sum[p] += taps[2 * R - (i - p)] * value;
    }
#pragma unroll
    for (int p = 0; p < P; ++p)
        if (top + first + p < H) result[(size_t)(top + first + p) * W + column] = sum[p];
#pragma tuner end
}
