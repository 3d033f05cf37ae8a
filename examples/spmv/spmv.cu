// y = A x for a sparse matrix A of n rows with `width` numbers each, in ELLPACK. The column of a number is computed, as
// arrays of indices cannot be given yet: the k-th of a row lies on a diagonal of its own within a band.

// Column of the k-th number of a row; n is a power of two.
__device__ __forceinline__ int column_of(int row, int k, int n) {
    return (row + int(unsigned(k) * 2654435761u >> 14)) & (n - 1);
}

template <int vector>
struct alignas(vector * sizeof(float)) Pack {
    float value[vector];
};

// `lanes` threads share a row, and take `vector` numbers side by side; a thread has `rows` rows. `stream`
// leaves the caches to x. Block y of the grid has the y-th product.
template <int width, int threads, int lanes, int rows, int vector, bool stream>
__global__ void __launch_bounds__(threads)
    spmv(const float* __restrict__ a, const float* __restrict__ x, float* __restrict__ y, int n) {
    static_assert(width % (lanes * vector) == 0);
    a += (size_t)blockIdx.y * n * width;
    y += (size_t)blockIdx.y * n;
    x += (size_t)blockIdx.y * n;
    constexpr int per_block = threads / lanes;
    const int lane = threadIdx.x % lanes;
    const int first = blockIdx.x * per_block * rows + threadIdx.x / lanes;
    float sum[rows] = {};
#pragma unroll
    for (int r = 0; r < rows; ++r) {
        const int row = first + r * per_block;
        if (row >= n) continue;
#pragma unroll
        for (int k = lane * vector; k < width; k += lanes * vector) {
            const float* from = a + (size_t)row * width + k;
            Pack<vector> pack;
            if constexpr (stream && vector == 4) {
                const float4 four = __ldcs(reinterpret_cast<const float4*>(from));
                pack = {{four.x, four.y, four.z, four.w}};
            } else if constexpr (stream) {
#pragma unroll
                for (int v = 0; v < vector; ++v) pack.value[v] = __ldcs(from + v);
            } else {
                pack = *reinterpret_cast<const Pack<vector>*>(from);
            }
#pragma unroll
            for (int v = 0; v < vector; ++v) sum[r] += pack.value[v] * __ldg(x + column_of(row, k + v, n));
        }
    }
#pragma unroll
    for (int r = 0; r < rows; ++r) {
#pragma unroll
        for (int step = lanes / 2; step > 0; step /= 2) sum[r] += __shfl_down_sync(0xffffffffu, sum[r], step, lanes);
        const int row = first + r * per_block;
        if (lane == 0 && row < n) y[row] = sum[r];
    }
}
