// Copies of boxes of a matrix to shared memory by the copy engine (PTX ISA, "cp.async.bulk.tensor"); sm_90.
// Elsewhere the thread that asks copies by itself.
#pragma once
#include "bulk.cuh"

// The form and address of a matrix, as the driver encodes it (CUtensorMap)
struct alignas(64) TensorMap {
    unsigned long long words[16];
};

// Rows of a box: the hardware copies 256 at most
__device__ constexpr int box_rows(int rows) { return rows < 256 ? rows : 256; }

// Brings `rows` rows of C columns, the first at (row, column) of a matrix of W columns, to shared memory, row after
// row. Called by one thread, after a block barrier behind the last use of `to`, which is aligned to 128 bytes.
// `streamed`: what is read leaves the second-level cache first.
template <int rows, int C, int W, bool streamed>
__device__ __forceinline__ void fetch_tile(float2* to, const TensorMap& map, const float2* matrix, int row, int column,
                                           unsigned long long* barrier) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    unsigned long long policy = 0;
    if (streamed) asm("createpolicy.fractional.L2::evict_first.b64 %0, 1.0;" : "=l"(policy));
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    expect(barrier, rows * C * sizeof(float2));
#pragma unroll
    for (int i = 0; i < rows; i += box_rows(rows)) {
        const unsigned place = shared_address(to + i * C);
        if constexpr (streamed)
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes.L2::cache_hint"
                " [%0], [%1, {%2, %3}], [%4], %5;" ::"r"(place),
                "l"(&map), "r"(column), "r"(row + i), "r"(shared_address(barrier)), "l"(policy)
                : "memory");
        else
            asm volatile(
                "cp.async.bulk.tensor.2d.shared::cluster.global.mbarrier::complete_tx::bytes"
                " [%0], [%1, {%2, %3}], [%4];" ::"r"(place),
                "l"(&map), "r"(column), "r"(row + i), "r"(shared_address(barrier))
                : "memory");
    }
#else
    for (int i = 0; i < rows * C; ++i) to[i] = matrix[(long long)(row + i / C) * W + column + i % C];
#endif
}
