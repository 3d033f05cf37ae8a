// Transforms of the columns of planes: M rows of W numbers, or every A-th row of A M.
//
// A block takes C neighbouring columns. Neighbouring threads have neighbouring columns, so that a warp reads and
// writes runs of C numbers, and no plane is transposed. y may be x: a block writes where it alone has read.
//
// The first radix A of a column of A M points may be taken before, where rows are read anyway (first_radix): then row
// A j + q holds point j of part q, and frequency A k + q of the column is frequency k of part q.
#pragma once

#include "any_fft.cuh"

// Column points a M + j for a < A, as u[a], become point j of A parts. w is root<T, A M>(j), fourth that of 4 j.
template <int A, class T>
__device__ __forceinline__ void first_radix(Complex<T> (&u)[A], Complex<T> w, Complex<T> fourth) {
    if constexpr (A > 1) {
        transform<A>(u);
        twist<A>(u, w, fourth);
    }
}

// Grid: tiles of C columns; within a plane first along a part, then part by part. enters, leaves: whether this is the
// first and the last pass of a transform, which swap real and imaginary parts of an inverse, and divide by `points`.
template <class Core, int W, int A, int C, bool inverse, bool enters, bool leaves, int points, int L, int blocks,
          int shared_bytes>
__global__ void __launch_bounds__(L, blocks)
    fft_columns(const Complex<typename Core::Real>* x, Complex<typename Core::Real>* y,
                const Complex<typename Core::Real>* __restrict__ table) {
    using T = typename Core::Real;
    using Word = typename Core::Word;
    constexpr int M = Core::N, tiles = (W + C - 1) / C;
    static_assert(shared_bytes == 0 || Core::pitch * C * sizeof(Word) <= shared_bytes, "room for all columns");
    static_assert(Core::has_spare || L == Core::G * C, "every thread has a column");
    extern __shared__ double2 shared[];

    const unsigned c = threadIdx.x % C, column = blockIdx.x % tiles * C + c, part = blockIdx.x / tiles;
    const unsigned t = seat_of<Core, 1>(threadIdx.x / C).t;
    const bool exists = W % C == 0 || column < W;
    // Threads past the end transform the last column again and keep quiet
    const long long at = (long long)(part / A) * A * M * W + part % A * W + (exists ? column : W - 1);
    const Complex<T>* const from = x + at;
    Complex<T>* const to = y + at;

    Complex<T> v[Core::inputs], w[Core::outputs];
    Core::for_inputs(t, [&](int k, unsigned o) {
        v[k] = !Core::is_padded || o < M ? swapped<inverse && enters>(from[o * (A * W)]) : Complex<T>{0, 0};
    });
    Core::run(v, w, t, reinterpret_cast<Word*>(shared) + c, table);
    if (!exists) return;
    constexpr T scale = inverse && leaves ? T(1.0 / points) : T(1);
    Core::for_outputs(t, [&](int k, unsigned o) {
        if (!Core::is_padded || o < M) to[o * (A * W)] = scaled(swapped<inverse && leaves>(w[k]), scale);
    });
}
