// The sum of n numbers. Every block adds up its part; then a second launch of one block adds these sums (FORM
// launches), or the block that finishes last does (FORM ticket). Blocks are as many as there are elements for, or CAP
// at most.
#pragma tuner problem(N = 1..2147483648, tolerance = 1e-4)
#pragma tuner input x: float32[N] = uniform(0, 1)
#pragma tuner output total: float32[1]
#pragma tuner scratch sums: float32[BLOCKS]
#pragma tuner zeroed ticket: uint32[1]
#pragma tuner value n: int64 = N
#pragma tuner value count: int32 = BLOCKS
#pragma tuner check total = sum(x)
#pragma tuner derived NEEDED = ceil_div(N, B * V)
#pragma tuner derived BLOCKS = select(CAP == 0, NEEDED, min(CAP, NEEDED))
#pragma tuner constraint CAP < NEEDED
#pragma tuner constraint FORM == 'launches' or BLOCKS > 1
#pragma tuner toml tunables.CAP = [0, 128, 512, 2048, 8192]
#pragma tuner toml tunables.FORM = ["launches", "ticket"]
#pragma tuner toml default.CAP = 0
#pragma tuner toml default.FORM = "launches"
#pragma tuner toml kernel.description = "Sum of an array, in two launches or by the last block"
#pragma tuner toml kernel.family = "reduction"
#pragma tuner toml work = { bytes = "4 * N", operations = "N", rate = "GB/s", rate_units = "4 * N" }

template <int V>
struct alignas(4 * V) Pack {
    float value[V];
};

__device__ float warp_sum(float sum)
{
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    return sum;
}

// The sum over a block of B threads, in the first of them.
template <int B>
__device__ float block_sum(float sum)
{
    __shared__ float of_warp[B / 32];
    sum = warp_sum(sum);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    return threadIdx.x < 32 ? warp_sum(threadIdx.x < B / 32 ? of_warp[threadIdx.x] : 0.0f) : 0.0f;
}

// What a thread adds up: every so many packs of V, and the first threads the up to V - 1 elements behind the last.
template <int B, int V>
__device__ float thread_sum(const float* __restrict__ x, long long n)
{
    const auto* packs = reinterpret_cast<const Pack<V>*>(x);
    const long long first = (long long)blockIdx.x * B + threadIdx.x, step = (long long)gridDim.x * B;
    float sum = 0.0f;
    for (long long i = first; i < n / V; i += step) {
        const Pack<V> pack = packs[i];
#pragma unroll
        for (int v = 0; v < V; ++v) sum += pack.value[v];
    }
    if (first < n % V) sum += x[n / V * V + first];
    return sum;
}

#pragma tuner erange B: 64, 1024, 2
#pragma tuner values V: 1, 2, 4
#pragma tuner launch grid(BLOCKS) block(B) when(FORM == 'launches')
template <int B = 128, int V = 1>
__global__ void partial_sums(const float* __restrict__ x, float* __restrict__ sums, float* __restrict__ total,
                             long long n)
{
    const float sum = block_sum<B>(thread_sum<B, V>(x, n));
    if (threadIdx.x == 0) *(gridDim.x == 1 ? total : sums + blockIdx.x) = sum;
}

#pragma tuner launch grid(1) block(B) when(FORM == 'launches' and BLOCKS > 1)
template <int B>
__global__ void sum_of_sums(const float* __restrict__ sums, float* __restrict__ total, int count)
{
    const float sum = block_sum<B>(thread_sum<B, 1>(sums, count));
    if (threadIdx.x == 0) *total = sum;
}

#pragma tuner launch grid(BLOCKS) block(B) when(FORM == 'ticket')
template <int B, int V>
__global__ void sum_at_once(const float* __restrict__ x, float* sums, float* __restrict__ total, unsigned* ticket,
                            long long n)
{
    __shared__ bool last;
    float sum = block_sum<B>(thread_sum<B, V>(x, n));
    if (threadIdx.x == 0) {
        sums[blockIdx.x] = sum;
        __threadfence();  // the sum is there before the ticket is drawn
        last = atomicAdd(ticket, 1u) == gridDim.x - 1;
    }
    __syncthreads();
    if (!last) return;
    __threadfence();
    sum = 0.0f;
    for (unsigned i = threadIdx.x; i < gridDim.x; i += B) sum += __ldcg(&sums[i]);  // written by others: from L2
    sum = block_sum<B>(sum);
    if (threadIdx.x == 0) *total = sum;
}
