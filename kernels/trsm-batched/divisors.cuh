// Numbers that many are divided by: their reciprocals, or where these lose digits or overflow the numbers themselves. The
// two do not overlap: reciprocals are from 2^-bound to 2^bound, and so are the numbers that have them.
#pragma once

template <class T>
struct Bound;
template <>
struct Bound<float> {
    static constexpr float least = 0x1p-125f, most = 0x1p125f;
};
template <>
struct Bound<double> {
    static constexpr double least = 0x1p-1021, most = 0x1p1021;
};

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
    return has_reciprocal(by) ? x * by : x / by;
}
