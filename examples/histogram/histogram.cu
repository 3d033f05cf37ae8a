// Histogram of n numbers in [-1, 1) over `bins` bins: a histogram for each block along x, then their sums. Block y of
// the grid has the y-th histogram.

template <int vector>
struct alignas(vector * sizeof(float)) Pack {
    float value[vector];
};

template <int bins>
__device__ __forceinline__ int bin_of(float value) {
    const int bin = int((value + 1.0f) * (bins / 2));
    return min(max(bin, 0), bins - 1);
}

// Warps share `copies` histograms in shared memory, so that fewer threads add to the same counter at a time. Padding
// moves the copies by a bank each. n is a multiple of `vector`.
template <int bins, int threads, int copies, int vector, int unroll, bool padded>
__global__ void __launch_bounds__(threads) count_bins(const float* __restrict__ x, int* __restrict__ parts, int n) {
    constexpr int pitch = bins + padded;
    __shared__ int shared[copies * pitch];
    for (int i = threadIdx.x; i < copies * pitch; i += threads) shared[i] = 0;
    __syncthreads();

    const Pack<vector>* packs = reinterpret_cast<const Pack<vector>*>(x + (size_t)blockIdx.y * n);
    int* counters = shared + threadIdx.x / 32 % copies * pitch;
    const int packed = n / vector, stride = gridDim.x * threads;
    for (int first = blockIdx.x * threads + threadIdx.x; first < packed; first += unroll * stride) {
        Pack<vector> pack[unroll];
#pragma unroll
        for (int u = 0; u < unroll; ++u) {
            if (first + u * stride < packed) pack[u] = packs[first + u * stride];
        }
#pragma unroll
        for (int u = 0; u < unroll; ++u) {
            if (first + u * stride < packed) {
#pragma unroll
                for (int v = 0; v < vector; ++v) atomicAdd(counters + bin_of<bins>(pack[u].value[v]), 1);
            }
        }
    }
    __syncthreads();

    int* part = parts + ((size_t)blockIdx.y * gridDim.x + blockIdx.x) * bins;
    for (int bin = threadIdx.x; bin < bins; bin += threads) {
        int sum = 0;
#pragma unroll
        for (int copy = 0; copy < copies; ++copy) sum += shared[copy * pitch + bin];
        part[bin] = sum;
    }
}

// A warp sums a bin of all blocks; blocks of `threads` threads.
template <int bins, int threads>
__global__ void __launch_bounds__(threads) merge(const int* __restrict__ parts, int* __restrict__ histogram, int blocks) {
    const int bin = blockIdx.x * (threads / 32) + threadIdx.x / 32;
    const int* first = parts + (size_t)blockIdx.y * blocks * bins + bin;
    int sum = 0;
    for (int block = threadIdx.x % 32; block < blocks; block += 32) sum += first[(size_t)block * bins];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) histogram[blockIdx.y * bins + bin] = sum;
}
