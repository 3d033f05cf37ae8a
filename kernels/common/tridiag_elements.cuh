// Numbers of tridiagonal systems: float, double, and complex ones of two floats. Each type has a reciprocal, the scale of
// a row, and shuffles.
#pragma once
#include "threads.cuh"

using Complex = float2;

__device__ __forceinline__ Complex operator-(Complex x) { return {-x.x, -x.y}; }
__device__ __forceinline__ Complex operator+(Complex x, Complex y) { return {x.x + y.x, x.y + y.y}; }
__device__ __forceinline__ Complex operator-(Complex x, Complex y) { return {x.x - y.x, x.y - y.y}; }
__device__ __forceinline__ Complex operator*(Complex x, float y) { return {x.x * y, x.y * y}; }
__device__ __forceinline__ Complex operator*(Complex x, Complex y) {
    return {x.x * y.x - x.y * y.y, x.x * y.y + x.y * y.x};
}
template <class T>
__device__ __forceinline__ Complex& operator*=(Complex& x, T y) { return x = x * y; }
__device__ __forceinline__ Complex& operator-=(Complex& x, Complex y) { return x = x - y; }

// Right sides of K systems with the same matrix
template <class T, int K>
struct Several {
    T at[K];
};

template <class T, int K>
__device__ __forceinline__ Several<T, K> operator-(Several<T, K> x, Several<T, K> y) {
#pragma unroll
    for (int k = 0; k < K; ++k) x.at[k] = x.at[k] - y.at[k];
    return x;
}
template <class T, class By, int K>
__device__ __forceinline__ Several<T, K> operator*(Several<T, K> x, By y) {
#pragma unroll
    for (int k = 0; k < K; ++k) x.at[k] = x.at[k] * y;
    return x;
}
template <class T, int K>
__device__ __forceinline__ Several<T, K> operator*(T x, Several<T, K> y) { return y * x; }
template <class T, int K>
__device__ __forceinline__ Several<T, K> operator+(Several<T, K> x, Several<T, K> y) {
#pragma unroll
    for (int k = 0; k < K; ++k) x.at[k] = x.at[k] + y.at[k];
    return x;
}
template <class T, class By, int K>
__device__ __forceinline__ Several<T, K>& operator*=(Several<T, K>& x, By y) { return x = x * y; }
template <class T, int K>
__device__ __forceinline__ Several<T, K>& operator-=(Several<T, K>& x, Several<T, K> y) { return x = x - y; }

template <class T>
struct RealOf {
    using type = T;
};
template <>
struct RealOf<Complex> {
    using type = float;
};
template <class T>
using Real = typename RealOf<T>::type;

// ---- reciprocals -----------------------------------------------------------------------------------------------
// They err by 1 or 2 ulp, which these systems do not notice. Pivots of scaled rows are far from the ends of the range:
// beyond, the result is 0, infinity or NaN. That of 0 is infinity or NaN.

__device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1.0f / x;
#endif
}

// 20 bits from the hardware, doubled by each of two steps of Newton's method
__device__ __forceinline__ double reciprocal(double x) {
#ifdef __CUDA_ARCH__
    double y;
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    y = fma(y, fma(-x, y, 1.0), y);
    return fma(y, fma(-x, y, 1.0), y);
#else
    return 1.0 / x;
#endif
}

__device__ __forceinline__ Complex reciprocal(Complex x) {
    const float k = reciprocal(x.x * x.x + x.y * x.y);
    return {x.x * k, -x.y * k};
}

// ---- scales ----------------------------------------------------------------------------------------------------
// A power of two that brings the largest coefficient of a row between 1/2 and 8: the exponent's complement without its
// last two bits, and 1 in their place, by one instruction. Where it is denormal, it becomes 2^-23 (2^-52) at least.

__device__ __forceinline__ float scale_of(float a, float b, float c) {
    const float largest = fmaxf(fmaxf(fabsf(a), fabsf(b)), fabsf(c));
    return __int_as_float(~__float_as_int(largest) & 0x7e000000 | 0x00800000);
}

// The upper half of the magnitude, which is ordered as the magnitudes are
__device__ __forceinline__ int upper_half(double x) { return int(__double_as_longlong(x) >> 32) & 0x7fffffff; }

__device__ __forceinline__ double scale_of(double a, double b, double c) {
    const int largest = max(max(upper_half(a), upper_half(b)), upper_half(c));
    return __longlong_as_double((long long)(~largest & 0x7fc00000 | 0x00100000) << 32);
}

__device__ __forceinline__ float larger_part(Complex x) { return fmaxf(fabsf(x.x), fabsf(x.y)); }

__device__ __forceinline__ float scale_of(Complex a, Complex b, Complex c) {
    return scale_of(larger_part(a), larger_part(b), larger_part(c));
}

// ---- shuffles --------------------------------------------------------------------------------------------------

template <class T>
__device__ __forceinline__ T of_lane(T value, int lane, int width) {
    return __shfl_sync(kAllLanes, value, lane, width);
}
__device__ __forceinline__ Complex of_lane(Complex value, int lane, int width) {
    return {of_lane(value.x, lane, width), of_lane(value.y, lane, width)};
}

// Of the lane before; the first keeps its own
template <class T>
__device__ __forceinline__ T of_lane_before(T value, int width) {
    return __shfl_up_sync(kAllLanes, value, 1, width);
}
__device__ __forceinline__ Complex of_lane_before(Complex value, int width) {
    return {of_lane_before(value.x, width), of_lane_before(value.y, width)};
}

template <class T, int K>
__device__ __forceinline__ Several<T, K> of_lane(Several<T, K> value, int lane, int width) {
#pragma unroll
    for (int k = 0; k < K; ++k) value.at[k] = of_lane(value.at[k], lane, width);
    return value;
}
template <class T, int K>
__device__ __forceinline__ Several<T, K> of_lane_before(Several<T, K> value, int width) {
#pragma unroll
    for (int k = 0; k < K; ++k) value.at[k] = of_lane_before(value.at[k], width);
    return value;
}
