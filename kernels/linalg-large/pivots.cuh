// The largest element of a column among the rows of many threads, as LAPACK's idamax: the first of equal ones.
#pragma once
#include "threads.cuh"

// Order of magnitudes as whole numbers; NaN is the largest.
__device__ __forceinline__ int magnitude(float x) { return __float_as_int(x) & 0x7fffffff; }
__device__ __forceinline__ long long magnitude(double x) { return __double_as_longlong(x) & 0x7fffffffffffffffll; }

__device__ __forceinline__ bool is_finite(float x) { return magnitude(x) < 0x7f800000; }
__device__ __forceinline__ bool is_finite(double x) { return magnitude(x) < 0x7ff0000000000000ll; }

template <class T>
struct Candidate {
    using Key = decltype(magnitude(T()));
    Key key;  // magnitude; -1 where there is no row
    int row;

    __device__ __forceinline__ void take_better(Key other, int at) {
        if (other > key || (other == key && at < row)) key = other, row = at;
    }
};

// The largest of the numbers of a warp.
__device__ __forceinline__ int largest_of_warp(int x) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    return __reduce_max_sync(kAllLanes, x);
#else
#pragma unroll
    for (int d = kWarp / 2; d > 0; d /= 2) {
        const int other = __shfl_xor_sync(kAllLanes, x, d);
        x = other > x ? other : x;
    }
    return x;
#endif
}

__device__ __forceinline__ long long largest_of_warp(long long x) {
    const int high = largest_of_warp(int(x >> 32)), of_low = int(unsigned(x) ^ 0x80000000u);
    const int low = largest_of_warp(int(x >> 32) == high ? of_low : int(0x80000000u));
    return (long long)(unsigned long long)(unsigned(high)) << 32 | (unsigned(low) ^ 0x80000000u);
}

// The best of the candidates of a warp.
template <class T>
__device__ __forceinline__ Candidate<T> best_of_warp(Candidate<T> mine) {
    const auto key = largest_of_warp(mine.key);
    return {key, -largest_of_warp(mine.key == key ? -mine.row : -0x7fffffff)};
}

// The number of the best of `count` lines, at most one for each lane.
template <class T, class Line>
__device__ __forceinline__ int best_of(const Line* lines, int count) {
    const int lane = threadIdx.x % kWarp;
    const Candidate<T> mine = lane < count ? Candidate<T>{lines[lane].key, lines[lane].place} : Candidate<T>{-2, 0};
    const Candidate<T> best = best_of_warp(mine);
    return __ffs(int(__ballot_sync(kAllLanes, mine.key == best.key && mine.row == best.row))) - 1;
}
