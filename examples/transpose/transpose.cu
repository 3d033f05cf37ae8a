// Transposes of n x n matrices, tile by tile through shared memory; block z of the grid has the z-th.

enum class Bank { plain, padded, swizzled };

// The place of an element of a tile in shared memory: a column of a plain tile lies in one bank.
template <int tile, Bank bank>
__device__ __forceinline__ int place(int row, int column) {
    if (bank == Bank::padded) return row * (tile + 1) + column;
    if (bank == Bank::swizzled) return row * tile + (column ^ (row % tile));
    return row * tile + column;
}

// Blocks of tile x rows threads; n is a multiple of `tile`, and `tile` of `rows`.
template <int tile, int rows, Bank bank, bool down, bool stream>
__global__ void __launch_bounds__(tile * rows) transpose(const float* __restrict__ in, float* __restrict__ out, int n) {
    __shared__ float shared[tile * (tile + (bank == Bank::padded))];
    const int tile_x = down ? blockIdx.y : blockIdx.x, tile_y = down ? blockIdx.x : blockIdx.y;
    const int x = threadIdx.x, y = threadIdx.y;
    const float* from = in + ((size_t)blockIdx.z * n + tile_y * tile) * n + tile_x * tile;
    float* to = out + ((size_t)blockIdx.z * n + tile_x * tile) * n + tile_y * tile;
#pragma unroll
    for (int row = y; row < tile; row += rows) {
        const float* source = from + (size_t)row * n + x;
        shared[place<tile, bank>(row, x)] = stream ? __ldcs(source) : *source;
    }
    __syncthreads();
#pragma unroll
    for (int row = y; row < tile; row += rows) {
        float* target = to + (size_t)row * n + x;
        const float value = shared[place<tile, bank>(x, row)];
        if (stream) __stcs(target, value);
        else *target = value;
    }
}
