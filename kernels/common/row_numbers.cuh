// How the numbers of rows are read before a transform and written behind it: complex rows, or real rows of N numbers,
// whose transform is told by frequencies 0 to N / 2.
//
// A row of type Row has `given` numbers of type Input before the transform, and `made` of type Output behind it.
// load(row, n) is point n as a forward transform takes it, and store(row, n, z) writes its result n < results: an
// inverse swaps real and imaginary parts, and divides by N.
#pragma once

#include "complex.cuh"
#include "row_layout.cuh"

template <class T, int N, bool inverse>
struct ComplexRow {
    using Input = Complex<T>;
    using Output = Complex<T>;
    static constexpr unsigned given = N, made = N, results = N;

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
    static constexpr unsigned given = N, made = N / 2 + 1, results = made;

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
    static constexpr unsigned given = N / 2 + 1, made = N, results = N;

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

// 2 N real numbers as N complex ones: results are those of that transform, of which half_frequencies makes the row's
template <class T, int N, bool inverse>
struct HalfRow {
    using Input = T;
    using Output = Complex<T>;
    static constexpr unsigned given = 2 * N, made = N + 1, results = N;

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout&, const Input* x, Output*) {
        return x;
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n) {
        return {row[2 * n], row[2 * n + 1]};
    }
    __device__ static __forceinline__ void store(Output* row, unsigned n, Complex<T> z) { row[n] = z; }
};

// N + 1 frequencies to 2 N real numbers
template <class T, int N>
struct HalfRow<T, N, true> {
    using Input = Complex<T>;
    using Output = T;
    static constexpr unsigned given = N + 1, made = 2 * N, results = N;

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout&, const Input* x, Output*) {
        return x;
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n) {
        Complex<T> one = scaled(row[n], T(0.5)), other = scaled(conjugate(row[N - n]), T(0.5));
        if (n == 0) one.y = other.y = 0;
        const Complex<T> even = one + other, odd = conjugate(root<T, 2 * N>(n)) * (one - other);
        return swapped<true>(Complex<T>{even.x - odd.y, even.y + odd.x});
    }
    __device__ static __forceinline__ void store(Output* row, unsigned n, Complex<T> z) {
        row[2 * n] = z.y * T(1.0 / N);
        row[2 * n + 1] = z.x * T(1.0 / N);
    }
};
