// How the numbers of rows are read before a transform and written behind it: complex rows, or real rows of N numbers,
// whose transform is told by frequencies 0 to N / 2.
//
// A row of type Row has `given` numbers of type Input before the transform, and `made` of type Output behind it.
// load(row, n) is point n as a forward transform takes it, and store(row, n, z) writes its result n: an inverse swaps
// real and imaginary parts, and divides by N.
#pragma once

#include "complex.cuh"
#include "row_layout.cuh"

template <class T, int N, bool inverse>
struct ComplexRow {
    using Input = Complex<T>;
    using Output = Complex<T>;
    static constexpr unsigned given = N, made = N;

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout& layout, const Input* x, Output* y) {
        return layout.source(x, y);
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n) { return swapped<inverse>(row[n]); }
    __device__ static __forceinline__ void store(Output* row, unsigned n, Complex<T> z) {
        row[n] = scaled(swapped<inverse>(z), inverse ? T(1.0 / N) : T(1));
    }
};

// Real numbers to frequencies
template <class T, int N, bool inverse>
struct RealRow {
    using Input = T;
    using Output = Complex<T>;
    static constexpr unsigned given = N, made = N / 2 + 1;

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout&, const Input* x, Output*) {
        return x;
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n) { return {row[n], 0}; }
    __device__ static __forceinline__ void store(Output* row, unsigned n, Complex<T> z) {
        if (n == 0 || 2 * n == N) z.y = 0;
        row[n] = z;
    }
};

// Frequencies to real numbers; imaginary parts that no real row has count for nothing
template <class T, int N>
struct RealRow<T, N, true> {
    using Input = Complex<T>;
    using Output = T;
    static constexpr unsigned given = N / 2 + 1, made = N;

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout&, const Input* x, Output*) {
        return x;
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n) { return load(row, n, n <= N / 2); }
    // given: whether n is N / 2 at most; of N / 2 itself it may be false
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n, bool given) {
        Complex<T> z = row[given ? n : N - n];
        if (!given) z = conjugate(z);
        if (n == 0 || 2 * n == N) z.y = 0;
        return swapped<true>(z);
    }
    __device__ static __forceinline__ void store(Output* row, unsigned n, Complex<T> z) { row[n] = z.y * T(1.0 / N); }
};
