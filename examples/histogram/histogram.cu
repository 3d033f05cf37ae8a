// How often each byte stands among n values. Every block counts in shared memory, in `copies` histograms, so that
// its threads meet less often. A load holds `vector` of them, of which n is a multiple.
template <int vector>
struct alignas(vector) Pack {
    unsigned char value[vector];
};

__global__ void clear(int* counts) { counts[threadIdx.x] = 0; }

template <int block_size_x, int copies, int vector>
__global__ void histogram(const unsigned char* __restrict__ values, int* __restrict__ counts, int n)
{
    constexpr int pitch = 257;  // the copies of a bin lie in different banks
    __shared__ int shared[copies * pitch];
    for (int i = threadIdx.x; i < copies * pitch; i += block_size_x) shared[i] = 0;
    __syncthreads();
    const auto* packs = reinterpret_cast<const Pack<vector>*>(values);
    int* mine = &shared[threadIdx.x % copies * pitch];
    for (int i = blockIdx.x * block_size_x + threadIdx.x; i < n / vector; i += gridDim.x * block_size_x) {
        const Pack<vector> pack = packs[i];
#pragma unroll
        for (int v = 0; v < vector; ++v) atomicAdd(&mine[pack.value[v]], 1);
    }
    __syncthreads();
    for (int bin = threadIdx.x; bin < 256; bin += block_size_x) {
        int sum = 0;
        for (int copy = 0; copy < copies; ++copy) sum += shared[copy * pitch + bin];
        atomicAdd(&counts[bin], sum);
    }
}
