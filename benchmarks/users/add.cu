// c = a + b. A load holds `vector` numbers, of which n is a multiple; a thread adds `loads` of them, a block apart.

template <int vector>
struct alignas(4 * vector) Pack {
    float value[vector];
};

template <int block_size_x, int vector, int loads>
__global__ void add(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c, int n) {
    const auto* left = reinterpret_cast<const Pack<vector>*>(a);
    const auto* right = reinterpret_cast<const Pack<vector>*>(b);
    auto* sum = reinterpret_cast<Pack<vector>*>(c);
#pragma unroll
    for (int k = 0; k < loads; ++k) {
        const int i = (blockIdx.x * loads + k) * block_size_x + threadIdx.x;
        if (i < n / vector) {
            Pack<vector> pack = left[i];
            const Pack<vector> other = right[i];
#pragma unroll
            for (int v = 0; v < vector; ++v) pack.value[v] += other.value[v];
            sum[i] = pack;
        }
    }
}
