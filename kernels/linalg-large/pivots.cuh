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

// The best of the candidates of a warp.
template <class T>
__device__ __forceinline__ Candidate<T> best_of_warp(Candidate<T> best) {
#pragma unroll
    for (int d = kWarp / 2; d > 0; d /= 2) {
        const auto key = __shfl_xor_sync(kAllLanes, best.key, d);
        const int row = __shfl_xor_sync(kAllLanes, best.row, d);
        best.take_better(key, row);
    }
    return best;
}

// The number of the best of `count` candidates, at most one for each lane.
template <class T>
__device__ __forceinline__ int best_of(const typename Candidate<T>::Key* keys, const int* rows, int count) {
    const int lane = threadIdx.x % kWarp;
    const Candidate<T> mine = lane < count ? Candidate<T>{keys[lane], rows[lane]} : Candidate<T>{-2, 0x7fffffff};
    const Candidate<T> best = best_of_warp(mine);
    return __ffs(int(__ballot_sync(kAllLanes, mine.key == best.key && mine.row == best.row))) - 1;
}
