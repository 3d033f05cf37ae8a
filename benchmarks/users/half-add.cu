// c = a + b of half precision, two numbers an addition. A load holds `pairs` of them; n is a multiple of 2 * pairs.
#include <cuda_fp16.h>

template <int pairs>
struct alignas(4 * pairs) Pack {
    __half2 value[pairs];
};

template <int block_size_x, int pairs, int loads>
__global__ void half_add(const __half* __restrict__ a, const __half* __restrict__ b, __half* __restrict__ c, int n) {
    const auto* left = reinterpret_cast<const Pack<pairs>*>(a);
    const auto* right = reinterpret_cast<const Pack<pairs>*>(b);
    auto* sum = reinterpret_cast<Pack<pairs>*>(c);
#pragma unroll
    for (int k = 0; k < loads; ++k) {
        const int i = (blockIdx.x * loads + k) * block_size_x + threadIdx.x;
        if (i < n / (2 * pairs)) {
            Pack<pairs> pack = left[i];
            const Pack<pairs> other = right[i];
#pragma unroll
            for (int v = 0; v < pairs; ++v) pack.value[v] = __hadd2(pack.value[v], other.value[v]);
            sum[i] = pack;
        }
    }
}
