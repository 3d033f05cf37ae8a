// Sums of the rows of a matrix, a block for each row.
//
// A load holds `vector` numbers, and every thread has `unroll` loads under way. The threads of a block add up by
// shuffles, or by halves in shared memory.

template <int vector>
struct alignas(4 * vector) Pack {
    float value[vector];
};

__device__ float warp_sum(float sum) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    return sum;
}

template <int block_x, int vector, int unroll, bool shuffles>
__global__ void row_sums(const float* __restrict__ x, float* __restrict__ sums, int columns) {
    __shared__ float parts[shuffles ? 32 : block_x];
    const auto* row = reinterpret_cast<const Pack<vector>*>(x + size_t(blockIdx.x) * columns);
    float sum = 0.0f;
#pragma unroll unroll
    for (int i = threadIdx.x; i < columns / vector; i += block_x) {
        const Pack<vector> pack = row[i];
#pragma unroll
        for (int v = 0; v < vector; ++v) sum += pack.value[v];
    }
    if (shuffles) {
        sum = warp_sum(sum);
        if (threadIdx.x % 32 == 0) parts[threadIdx.x / 32] = sum;
        __syncthreads();
        sum = warp_sum(threadIdx.x < block_x / 32 ? parts[threadIdx.x] : 0.0f);
    } else {
        parts[threadIdx.x] = sum;
#pragma unroll
        for (int half = block_x / 2; half > 0; half /= 2) {
            __syncthreads();
            if (threadIdx.x < half) parts[threadIdx.x] += parts[threadIdx.x + half];
        }
        if (threadIdx.x == 0) sum = parts[0];
    }
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}

// What answers are compared with; a template, so that it is compiled for that alone.
template <class Real>
__global__ void naive(const float* __restrict__ x, float* __restrict__ sums, int columns) {
    Real sum = 0;
    for (int i = threadIdx.x; i < columns; i += 32) sum += x[size_t(blockIdx.x) * columns + i];
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x == 0) sums[blockIdx.x] = float(sum);
}
