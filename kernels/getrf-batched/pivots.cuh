// Pivots of LU factorisations, as LAPACK chooses and divides by them.
#pragma once

// Order of magnitudes as whole numbers; NaN is the largest.
__device__ __forceinline__ int magnitude(float x) { return __float_as_int(x) & 0x7fffffff; }
__device__ __forceinline__ long long magnitude(double x) { return __double_as_longlong(x) & 0x7fffffffffffffffll; }

// The same of the leading half of their bits.
__device__ __forceinline__ int leading(float x) { return magnitude(x); }
__device__ __forceinline__ int leading(double x) { return int(magnitude(x) >> 32); }

constexpr int kNowhere = 0x7fffffff;

// The largest key of so many lanes next to each other. Called by whole warps.
template <int lanes>
__device__ __forceinline__ int largest_of(int key) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    if (lanes == kWarp) return __reduce_max_sync(kAllLanes, key);
#endif
#pragma unroll
    for (int d = lanes / 2; d > 0; d /= 2) {
        const int other = __shfl_xor_sync(kAllLanes, key, d);
        if (other > key) key = other;
    }
    return key;
}

// Whether a reciprocal can stand for a division: LAPACK divides by pivots whose reciprocal overflows.
__device__ __forceinline__ bool is_finite(float x) { return magnitude(x) < 0x7f800000; }
__device__ __forceinline__ bool is_finite(double x) { return magnitude(x) < 0x7ff0000000000000ll; }

template <class T>
struct Pivot {
    int row;
    T value;
    T inverse;     // of the value
    bool divides;  // in some problem of the warp the inverse is not finite
};

// Elements below the pivot by it; below a pivot that is zero they are zero and stay so.
template <class T>
__device__ __forceinline__ T multiplier(T element, const Pivot<T>& pivot) {
    if (is_finite(pivot.inverse)) return element * pivot.inverse;
    return pivot.value == T(0) ? element : element / pivot.value;
}
