// Words for the threads that work on one problem together.
#pragma once

constexpr int kWarp = 32;
constexpr unsigned kAllLanes = 0xffffffffu;

// Meets the threads of a problem that G threads share: a warp at most needs no block barrier.
template <int G>
__device__ __forceinline__ void meet() {
    if constexpr (G <= kWarp)
        __syncwarp();
    else
        __syncthreads();
}
