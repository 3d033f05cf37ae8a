// The transpose of a row-major matrix of H x W, an element a thread: reads or writes of a warp are apart.
#pragma tuner problem(H = 1..536870912, W = 1..536870912)
#pragma tuner input x: float32[H, W]
#pragma tuner output y: float32[W, H]
#pragma tuner check y = transpose(x)
#pragma tuner derived DOWN = ceil_div(H, BLOCK_Y)
#pragma tuner derived LAYERS = ceil_div(DOWN, 65535)
#pragma tuner constraint 64 <= BLOCK_X * BLOCK_Y <= 1024
#pragma tuner toml kernel.description = "Transpose of a matrix, each element moved by a thread of its own"
#pragma tuner toml kernel.family = "transpose"
#pragma tuner toml work = { bytes = "8 * H * W", operations = 0, rate = "GB/s", rate_units = "8 * H * W" }

#pragma erange 4, 64, 2
#define BLOCK_X 16
#pragma erange 4, 64, 2
#define BLOCK_Y 16

#pragma tuner launch grid(ceil_div(W, BLOCK_X), ceil_div(DOWN, LAYERS), LAYERS) block(BLOCK_X, BLOCK_Y)
extern "C" __global__ void transpose_naive(const float* __restrict__ x, float* __restrict__ y, int H, int W)
{
    const int column = blockIdx.x * BLOCK_X + threadIdx.x;
    const int row = (blockIdx.z * gridDim.y + blockIdx.y) * BLOCK_Y + threadIdx.y;
    if (row < H && column < W) y[(size_t)column * H + row] = x[(size_t)row * W + column];
}
