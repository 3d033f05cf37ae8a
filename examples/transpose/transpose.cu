// The transpose of an n x n matrix, tile by tile through shared memory; n is a multiple of `tile`.
// Without padding, a column of a tile lies in one bank of shared memory. Blocks of tile x rows threads.
template <int tile, int rows, int padding, bool streaming>
__global__ void transpose(const float* __restrict__ x, float* __restrict__ y, int n)
{
    __shared__ float shared[tile][tile + padding];
    const int across = threadIdx.x, down = threadIdx.y, left = blockIdx.x * tile, top = blockIdx.y * tile;
#pragma unroll
    for (int row = 0; row < tile; row += rows) {
        const float* source = &x[(size_t)(top + row + down) * n + left + across];
        shared[row + down][across] = streaming ? __ldcs(source) : *source;
    }
    __syncthreads();
#pragma unroll
    for (int row = 0; row < tile; row += rows) {
        float* target = &y[(size_t)(left + row + down) * n + top + across];
        const float value = shared[across][row + down];
        if (streaming) __stcs(target, value);
        else *target = value;
    }
}
