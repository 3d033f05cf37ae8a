// The transpose of a row-major matrix of H x W, tile by tile through shared memory, so that reads and writes of a warp
// lie side by side. A block of TILE / V x ROWS threads moves a tile; a thread reads and writes V elements at a time.
// Without PAD, a column of a tile lies in one bank of shared memory.
#pragma tuner problem(H = 1..536870912, W = 1..536870912)
#pragma tuner input x: float32[H, W]
#pragma tuner output y: float32[W, H]
#pragma tuner check y = transpose(x)
#pragma tuner derived DOWN = ceil_div(H, TILE)
#pragma tuner derived LAYERS = ceil_div(DOWN, 65535)
#pragma tuner constraint ROWS <= TILE
#pragma tuner constraint 32 <= ceil_div(TILE, V) * ROWS <= 1024
#pragma tuner constraint H % V == 0 and W % V == 0
#pragma tuner toml kernel.description = "Transpose of a matrix through tiles in shared memory"
#pragma tuner toml kernel.family = "transpose"
#pragma tuner toml work = { bytes = "8 * H * W", operations = 0, rate = "GB/s", rate_units = "8 * H * W" }

template <int V>
struct alignas(4 * V) Pack {
    float value[V];
};

#pragma tuner values TILE: 16, 32, 64
#pragma tuner erange ROWS: 2, 32, 2
#pragma tuner values PAD: 0, 1
#pragma tuner values V: 1, 2, 4
#pragma tuner launch grid(ceil_div(W, TILE), ceil_div(DOWN, LAYERS), LAYERS) block(ceil_div(TILE, V), ROWS)
template <int TILE = 16, int ROWS = 16, int PAD = 1, int V = 1>
__global__ void transpose(const float* __restrict__ x, float* __restrict__ y, int H, int W)
{
    __shared__ float tile[TILE][TILE + PAD];
    const int left = blockIdx.x * TILE, top = (blockIdx.z * gridDim.y + blockIdx.y) * TILE, across = threadIdx.x * V;
#pragma unroll
    for (int start = 0; start < TILE; start += ROWS) {
        const int row = start + threadIdx.y;
        if (top + row < H && left + across < W) {
            const Pack<V> pack = *reinterpret_cast<const Pack<V>*>(&x[(size_t)(top + row) * W + left + across]);
#pragma unroll
            for (int v = 0; v < V; ++v) tile[row][across + v] = pack.value[v];
        }
    }
    __syncthreads();
#pragma unroll
    for (int start = 0; start < TILE; start += ROWS) {
        const int row = start + threadIdx.y;
        if (left + row < W && top + across < H) {
            Pack<V> pack;
#pragma unroll
            for (int v = 0; v < V; ++v) pack.value[v] = tile[across + v][row];
            *reinterpret_cast<Pack<V>*>(&y[(size_t)(left + row) * H + top + across]) = pack;
        }
    }
}
