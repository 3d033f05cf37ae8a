// Softmax of rows: exp(x - max) over its sum.

template <int vector>
struct alignas(vector * sizeof(float)) Pack {
    float value[vector];
};

// Where a row is kept between its three passes.
enum class Keep { memory, shared, registers };

struct Sum {
    static __device__ float of(float a, float b) { return a + b; }
};
struct Maximum {
    static __device__ float of(float a, float b) { return fmaxf(a, b); }
};

// What `threads` neighbouring threads hold together, known to each; one group of threads in each row y of the block.
template <class Operation, int threads, int rows>
__device__ __forceinline__ float all(float value) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value = Operation::of(value, __shfl_xor_sync(0xffffffffu, value, step));
    if constexpr (threads > 32) {
        __shared__ float of_warp[rows][threads / 32];
        __syncthreads();
        if (threadIdx.x % 32 == 0) of_warp[threadIdx.y][threadIdx.x / 32] = value;
        __syncthreads();
        value = of_warp[threadIdx.y][0];
#pragma unroll
        for (int warp = 1; warp < threads / 32; ++warp) value = Operation::of(value, of_warp[threadIdx.y][warp]);
    }
    return value;
}

template <bool fast>
__device__ __forceinline__ float power(float x) {
    return fast ? __expf(x) : expf(x);
}

// Blocks of threads x rows threads, which take `rows` of the `count` rows of N numbers; N is a multiple of
// threads * vector.
template <int N, int threads, int rows, int vector, Keep keep, bool fast>
__global__ void __launch_bounds__(threads * rows) softmax(const float* __restrict__ x, float* __restrict__ y, int count) {
    constexpr int packs = N / (threads * vector);
    __shared__ Pack<vector> shared[keep == Keep::shared ? rows : 1][keep == Keep::shared ? N / vector : 1];
    Pack<vector> held[keep == Keep::registers ? packs : 1];
    const int row = min(blockIdx.x * rows + threadIdx.y, count - 1);  // threads beyond read the last row, too
    const Pack<vector>* from = reinterpret_cast<const Pack<vector>*>(x + (size_t)row * N);
    Pack<vector>* to = reinterpret_cast<Pack<vector>*>(y + (size_t)row * N);
    const auto kept = [&](int i) -> Pack<vector> {
        if constexpr (keep == Keep::registers) return held[i];
        else if constexpr (keep == Keep::shared) return shared[threadIdx.y][i * threads + threadIdx.x];
        else return from[i * threads + threadIdx.x];
    };

    float largest = -1e30f;
#pragma unroll
    for (int i = 0; i < packs; ++i) {
        const Pack<vector> pack = from[i * threads + threadIdx.x];
        if constexpr (keep == Keep::registers) held[i] = pack;
        if constexpr (keep == Keep::shared) shared[threadIdx.y][i * threads + threadIdx.x] = pack;
#pragma unroll
        for (int v = 0; v < vector; ++v) largest = fmaxf(largest, pack.value[v]);
    }
    largest = all<Maximum, threads, rows>(largest);

    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < packs; ++i) {
        Pack<vector> pack = kept(i);
#pragma unroll
        for (int v = 0; v < vector; ++v) sum += pack.value[v] = power<fast>(pack.value[v] - largest);
        if constexpr (keep == Keep::registers) held[i] = pack;
        if constexpr (keep == Keep::shared) shared[threadIdx.y][i * threads + threadIdx.x] = pack;
    }
    const float scale = 1.0f / all<Sum, threads, rows>(sum);

#pragma unroll
    for (int i = 0; i < packs; ++i) {
        Pack<vector> pack = kept(i);
#pragma unroll
        for (int v = 0; v < vector; ++v) {
            pack.value[v] = scale * (keep == Keep::memory ? power<fast>(pack.value[v] - largest) : pack.value[v]);
        }
        if (blockIdx.x * rows + threadIdx.y < count) to[i * threads + threadIdx.x] = pack;
    }
}
