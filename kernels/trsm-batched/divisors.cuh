// Numbers that many are divided by: their reciprocals, or where these lose digits or overflow the numbers themselves. The
// two do not overlap: reciprocals are from 2^-bound to 2^bound, and so are the numbers that have them.
#pragma once

template <class T>
struct Bound;
template <>
struct Bound<float> {
    static constexpr float least = 0x1p-125f, most = 0x1p125f, up = 0x1p60f, down = 0x1p-60f;
};
template <>
struct Bound<double> {
    static constexpr double least = 0x1p-1021, most = 0x1p1021, up = 0x1p500, down = 0x1p-500;
};

__device__ __forceinline__ float reciprocal(float x) { return __fdividef(1.0f, x); }

// Of numbers far from the ends of the range: a few bits, and twice as many with each step of Newton's method. A division
// takes more registers, which all threads would have for a few.
__device__ __forceinline__ double reciprocal(double x) {
    double y = 1.0;
#ifdef __CUDACC__
    asm("rcp.approx.ftz.f64 %0, %1;" : "=d"(y) : "d"(x));
    y = fma(y, fma(-x, y, 1.0), y);
    y = fma(y, fma(-x, y, 1.0), y);
#else
    y /= x;
#endif
    return y;
}

template <class T>
__device__ __forceinline__ bool has_reciprocal(T x) {
    const T size = x < T(0) ? -x : x;
    return size >= Bound<T>::least && size <= Bound<T>::most;
}

template <class T>
__device__ __forceinline__ T divisor(T x) {
    return has_reciprocal(x) ? T(1) / x : x;
}

template <class T>
__device__ __forceinline__ T divided(T x, T by) {
    if (has_reciprocal(by)) return x * by;
    const T factor = by < T(1) && by > T(-1) ? Bound<T>::up : Bound<T>::down;
    return x * reciprocal(by * factor) * factor;
}
