// Sums of squares of n numbers each: a partial sum for each block along x, then the sum of these. Block y of the grid
// has the y-th sum.

template <int vector>
struct alignas(vector * sizeof(float)) Pack {
    float value[vector];
};

// The sum over the threads of a block, known to thread 0.
template <int threads, bool shuffle>
__device__ float block_sum(float sum) {
    if constexpr (shuffle) {
        __shared__ float of_warp[threads / 32];
#pragma unroll
        for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
        if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = 0.0f;
        if (threadIdx.x == 0) {
#pragma unroll
            for (int warp = 0; warp < threads / 32; ++warp) sum += of_warp[warp];
        }
    } else {
        __shared__ float of_thread[threads];
        of_thread[threadIdx.x] = sum;
        __syncthreads();
#pragma unroll
        for (int half = threads / 2; half > 0; half /= 2) {
            if (threadIdx.x < half) of_thread[threadIdx.x] += of_thread[threadIdx.x + half];
            __syncthreads();
        }
        sum = of_thread[0];
    }
    return sum;
}

// n is a multiple of `vector`; every thread has `unroll` loads of `vector` numbers under way.
template <int threads, int vector, int unroll, bool shuffle>
__global__ void __launch_bounds__(threads) partial_sums(const float* __restrict__ x, float* __restrict__ sums, int n) {
    const Pack<vector>* packs = reinterpret_cast<const Pack<vector>*>(x + (size_t)blockIdx.y * n);
    const int count = n / vector, stride = gridDim.x * threads;
    float sum[unroll] = {};
    for (int first = blockIdx.x * threads + threadIdx.x; first < count; first += unroll * stride) {
        Pack<vector> pack[unroll];
#pragma unroll
        for (int u = 0; u < unroll; ++u) {
            const int i = first + u * stride;
            if (i < count) pack[u] = packs[i];
            else pack[u] = {};
        }
#pragma unroll
        for (int u = 0; u < unroll; ++u) {
#pragma unroll
            for (int v = 0; v < vector; ++v) sum[u] += pack[u].value[v] * pack[u].value[v];
        }
    }
    float total = 0.0f;
#pragma unroll
    for (int u = 0; u < unroll; ++u) total += sum[u];
    total = block_sum<threads, shuffle>(total);
    if (threadIdx.x == 0) sums[blockIdx.y * gridDim.x + blockIdx.x] = total;
}

template <int threads, bool shuffle>
__global__ void __launch_bounds__(threads) total(const float* __restrict__ sums, float* __restrict__ sum, int count) {
    float part = 0.0f;
    for (int i = threadIdx.x; i < count; i += threads) part += sums[blockIdx.x * count + i];
    part = block_sum<threads, shuffle>(part);
    if (threadIdx.x == 0) sum[blockIdx.x] = part;
}
