// How the numbers of rows are read before a transform and written behind it: complex rows, or real rows of N numbers,
// whose transform is told by frequencies 0 to N / 2.
//
// A row of type Row has `given` numbers of type Input before the transform, and `made` of type Output behind it.
// load(row, n, lower) is point n < points as a forward transform takes it, others are zero; lower: whether n is N / 2 at
// most, of which N / 2 itself may be told otherwise. store(row, n, z) writes result n < results. An inverse swaps real
// and imaginary parts, and divides by N.
#pragma once

#include "complex.cuh"
#include "row_layout.cuh"

template <class T, int N, bool inverse>
struct ComplexRow {
    using Input = Complex<T>;
    using Output = Complex<T>;
    static constexpr unsigned given = N, made = N, points = N, results = N;

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout& layout, const Input* x, Output* y) {
        return layout.source(x, y);
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n, bool) {
        return swapped<inverse>(row[n]);
    }
    __device__ static __forceinline__ void store(Output* row, unsigned n, Complex<T> z) {
        row[n] = scaled(swapped<inverse>(z), inverse ? T(1.0 / N) : T(1));
    }
};

// Real numbers to frequencies, N odd
template <class T, int N, bool inverse>
struct RealRow {
    using Input = T;
    using Output = Complex<T>;
    static constexpr unsigned given = N, made = N / 2 + 1, points = N, results = made;
    static_assert(N % 2 == 1, "an even row is half as many complex numbers");

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout&, const Input* x, Output*) {
        return x;
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n, bool) { return {row[n], 0}; }
    __device__ static __forceinline__ void store(Output* row, unsigned n, Complex<T> z) {
        if (n == 0) z.y = 0;
        row[n] = z;
    }
};

// Frequencies to real numbers, N odd: real parts of a transform of the given frequencies, of which the others would be
// conjugates, and add as much
template <class T, int N>
struct RealRow<T, N, true> {
    using Input = Complex<T>;
    using Output = T;
    static constexpr unsigned given = N / 2 + 1, made = N, points = given, results = N;

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout&, const Input* x, Output*) {
        return x;
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n, bool) {
        return swapped<true>(n ? row[n] : Complex<T>{row[n].x * T(0.5), 0});
    }
    __device__ static __forceinline__ void store(Output* row, unsigned n, Complex<T> z) { row[n] = z.y * T(2.0 / N); }
};

// All frequencies of real numbers, of which those up to N / 2 are given; imaginary parts that no real row has count for
// nothing
template <class T, int N, bool inverse>
struct SymmetricRow {
    static_assert(inverse, "real numbers are taken by two columns");
    using Input = Complex<T>;
    using Output = T;
    static constexpr unsigned given = N / 2 + 1, points = N;

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout&, const Input* x, Output*) {
        return x;
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n, bool lower) {
        Complex<T> z = row[lower ? n : N - n];
        if (!lower) z = conjugate(z);
        if (n == 0 || 2 * n == N) z.y = 0;
        return swapped<true>(z);
    }
};

// 2 N real numbers as N complex ones: results are those of that transform, of which half_frequencies makes the row's
template <class T, int N, bool inverse>
struct HalfRow {
    using Input = T;
    using Output = Complex<T>;
    static constexpr unsigned given = 2 * N, made = N + 1, points = N, results = N;

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout&, const Input* x, Output*) {
        return x;
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n, bool) {
        return {row[2 * n], row[2 * n + 1]};
    }
    __device__ static __forceinline__ void store(Output* row, unsigned n, Complex<T> z) { row[n] = z; }
};

// N + 1 frequencies to 2 N real numbers
template <class T, int N>
struct HalfRow<T, N, true> {
    using Input = Complex<T>;
    using Output = T;
    static constexpr unsigned given = N + 1, made = 2 * N, points = N, results = N;

    template <class Layout>
    __device__ static __forceinline__ const Input* source(const Layout&, const Input* x, Output*) {
        return x;
    }
    __device__ static __forceinline__ Complex<T> load(const Input* row, unsigned n, bool) {
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
