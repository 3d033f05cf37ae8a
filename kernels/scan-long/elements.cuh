// Elements of 16 bits, which are computed with as float, complex ones, and values as words.
#pragma once

struct Half {
    unsigned short bits;
};

struct BFloat16 {
    unsigned short bits;
};

__device__ __forceinline__ float widened(BFloat16 x) { return __uint_as_float(unsigned(x.bits) << 16); }

// To the nearest, ties to even; a NaN stays one.
__device__ __forceinline__ BFloat16 to_bfloat16(float x) {
    const unsigned bits = __float_as_uint(x);
    const unsigned rounded = x == x ? bits + 0x7fff + (bits >> 16 & 1) : bits | 0x400000;
    return {(unsigned short)(rounded >> 16)};
}

#if defined(__CUDA_ARCH__)
__device__ __forceinline__ float widened(Half x) {
    float wide;
    asm("cvt.f32.f16 %0, %1;" : "=f"(wide) : "h"(x.bits));
    return wide;
}

__device__ __forceinline__ Half to_half(float x) {
    Half half;
    asm("cvt.rn.f16.f32 %0, %1;" : "=h"(half.bits) : "f"(x));
    return half;
}
#else  // as the language of the host has it
__device__ __forceinline__ float widened(Half x) {
    _Float16 half;
    __builtin_memcpy(&half, &x.bits, 2);
    return float(half);
}

__device__ __forceinline__ Half to_half(float x) {
    const _Float16 half = _Float16(x);
    Half made;
    __builtin_memcpy(&made.bits, &half, 2);
    return made;
}
#endif

// A complex number; its order is that of NumPy: by the real parts, then by the imaginary ones.
template <class T>
struct alignas(2 * sizeof(T)) Complex {
    T re, im;
};

template <class T>
__device__ __forceinline__ Complex<T> operator+(const Complex<T>& a, const Complex<T>& b) {
    return {a.re + b.re, a.im + b.im};
}

template <class T>
__device__ __forceinline__ Complex<T> operator*(const Complex<T>& a, const Complex<T>& b) {
    return {a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re};
}

template <class T>
__device__ __forceinline__ bool operator!=(const Complex<T>& a, const Complex<T>& b) {
    return a.re != b.re || a.im != b.im;
}

template <class T>
__device__ __forceinline__ bool operator<(const Complex<T>& a, const Complex<T>& b) {
    return a.re < b.re || (a.re == b.re && a.im < b.im);
}

// A value as words of 4 bytes.
template <class T>
struct Words {
    static_assert(sizeof(T) % 4 == 0, "values between threads are whole words");
    static constexpr int count = sizeof(T) / 4;
    unsigned at[count];
};

template <class T>
__device__ __forceinline__ Words<T> words_of(const T& value) {
    Words<T> words;
    memcpy(words.at, &value, sizeof(T));
    return words;
}

template <class T>
__device__ __forceinline__ T value_of(const Words<T>& words) {
    T value;
    memcpy(&value, words.at, sizeof(T));
    return value;
}
