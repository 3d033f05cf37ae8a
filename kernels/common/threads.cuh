// Words for the threads that work on one problem together.
#pragma once

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

__device__ constexpr int next_pow2(int n) { return n <= 1 ? 1 : 2 * next_pow2((n + 1) / 2); }

// Meets the threads of a problem that G threads share: a warp at most needs no block barrier.
template <int G>
__device__ __forceinline__ void meet() {
    if constexpr (G <= kWarp)
        __syncwarp();
    else
        __syncthreads();
}
