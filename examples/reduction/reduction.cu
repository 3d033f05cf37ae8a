// The sum of n numbers: every block makes a partial sum; a second launch of one block adds these.
// A load holds `vector` numbers, of which n is a multiple; every thread has `unroll` loads under way.
template <int vector>
struct alignas(4 * vector) Pack {
    float value[vector];
};

__device__ float warp_sum(float sum)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    return sum;
}

template <int block_size_x, int vector, int unroll>
__global__ void partial_sums(const float* __restrict__ x, float* __restrict__ sums, int n)
{
    const auto* packs = reinterpret_cast<const Pack<vector>*>(x);
    float sum = 0.0f;
#pragma unroll unroll
    for (int i = blockIdx.x * block_size_x + threadIdx.x; i < n / vector; i += gridDim.x * block_size_x) {
        const Pack<vector> pack = packs[i];
#pragma unroll
        for (int v = 0; v < vector; ++v) sum += pack.value[v];
    }
    __shared__ float of_warp[32];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    sum = warp_sum(threadIdx.x < block_size_x / 32 ? of_warp[threadIdx.x] : 0.0f);
    if (threadIdx.x == 0) sums[blockIdx.x] = sum;
}
