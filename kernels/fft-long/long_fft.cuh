// What the passes of a long transform add to transforms of columns and rows: the factors between two passes, and rows
// that are written across.
//
// N = A W points are taken as a matrix of A rows and W columns (Bailey's four-step algorithm, "FFTs in External or
// Hierarchical Memory", 1990). Point n of the transform is element (a, w) of the matrix, n = a W + w. The first pass
// transforms the columns and multiplies frequency k of column w by exp(-2 pi i k w / N). The second pass transforms the
// rows: frequency l of row k is frequency k + A l of the whole.
#pragma once

#include "mixed_fft.cuh"

// exp(-2 pi i m / n), 0 <= m < n <= 2^25: at most half a turn either way, which float holds exactly
template <class T, int n>
__device__ __forceinline__ Complex<T> long_root(unsigned m) {
    static_assert(n <= 1 << 25, "half of n is a number that float holds");
    return root<T, n>(m > n / 2 ? m - n : m);
}

// Elements of a column before a stage, or behind the last one: element o times exp(-2 pi i o column / (N W)). Those of a
// butterfly are in geometric progression. They are products of few exact factors, by the binary digits of their numbers;
// the factor of every second digit is the square of the one before.
template <class Fft, int stage, int W, class T>
__device__ __forceinline__ void twiddle(Complex<T> (&v)[Fft::held(stage)], unsigned t, unsigned column) {
    constexpr int R = Fft::Stages::at(stage), apart = Fft::butterflies(stage);
    Complex<T> digit[6];
#pragma unroll
    for (int k = 0; 1 << k < R; ++k) digit[k] = k % 2 ? digit[k - 1] * digit[k - 1] : long_root<T, R * W>(column << k);
#pragma unroll
    for (int i = 0; i < Fft::turns(stage); ++i) {
        const unsigned b = t + i * Fft::G;
        if (Fft::whole(stage) || b < apart) {
            Complex<T> power[R];
            power[0] = long_root<T, Fft::N * W>(b * column);
#pragma unroll
            for (int k = 0; 1 << k < R; ++k) {
#pragma unroll
                for (int q = 1 << k; q < 2 << k && q < R; ++q) power[q] = power[q - (1 << k)] * digit[k];
            }
#pragma unroll
            for (int q = 0; q < R; ++q) v[i * R + q] = v[i * R + q] * power[q];
        }
    }
}

// Who has a row, and which of its threads
struct Lane {
    unsigned t, row;
};

// Transforms of C rows by G threads each. Neighbouring threads have neighbouring elements of a row before the transform,
// so that a warp reads along it, and neighbouring rows behind it, so that a warp writes across them.
template <class Fft_, int C>
struct TurnedRows {
    using Fft = Fft_;
    using Word = typename Fft::Word;
    static constexpr int last = Fft::last, lanes = Fft::banks;
    // Rows are as far apart as the lanes that read across them want it: those of a row are next to each other
    static constexpr int wanted = C < lanes ? lanes / C : 1;
    static constexpr int pitch = last == 0 ? Fft::N : Fft::padded() + ((wanted - Fft::padded()) % lanes + lanes) % lanes;

    __device__ static Lane loaded(unsigned thread) {
        return thread < Fft::G * C ? Lane{thread % Fft::G, thread / Fft::G} : Lane{kNoThread, 0};
    }
    __device__ static Lane stored(unsigned thread) {
        if (last == 0) return loaded(thread);  // nothing changes hands
        return thread < Fft::G * C ? Lane{thread / C, thread % C} : Lane{kNoThread, 0};
    }
};

// step(in_use, part) for what is exchanged at a time: numbers, or real parts and then imaginary parts
template <class Fft, class Step>
__device__ __forceinline__ void by_parts(bool in_use, Step step) {
    using Number = Complex<typename Fft::Real>;
    if constexpr (Fft::split) {
        step(in_use, [](Number& z) -> typename Fft::Real& { return z.x; });
        step(true, [](Number& z) -> typename Fft::Real& { return z.y; });
    } else {
        step(in_use, [](Number& z) -> Number& { return z; });
    }
}

// v, the points before stage `stage` of the row that this thread loaded, become those behind the last one of the row
// that it stores, in w. in_use: threads may still be reading the room.
template <class Rows, int stage = 0, class T>
__device__ __forceinline__ void turned_fft(Complex<T> (&v)[Rows::Fft::held(stage)],
                                           Complex<T> (&w)[Rows::Fft::held(Rows::last)], typename Rows::Word* room,
                                           bool in_use = false) {
    using Fft = typename Rows::Fft;
    const Lane here = Rows::loaded(threadIdx.x), there = Rows::stored(threadIdx.x);
    auto* const own = room + here.row * Rows::pitch;
    if constexpr (Rows::last == 0) {
        mixed_fft<Fft>(v, w, here.t, own, in_use);
    } else if constexpr (stage + 1 < Rows::last) {
        using Row = Complex<T>[1][Fft::held(stage)];
        Complex<T> next[1][Fft::held(stage + 1)];
        butterflies<Fft, stage>(v, here.t);
        by_parts<Fft>(in_use, [&](bool used, auto part) {
            exchange<Fft, stage>(reinterpret_cast<Row&>(v), next, here.t, own, used, part);
        });
        turned_fft<Rows, stage + 1>(next[0], w, room, true);
    } else {
        butterflies<Fft, stage>(v, here.t);
        by_parts<Fft>(in_use, [&](bool used, auto part) {
            if (used) __syncthreads();
            give<Fft, stage>(v, here.t, own, part);
            __syncthreads();
            take<Fft, stage>(w, there.t, room + there.row * Rows::pitch, part);
        });
        butterflies<Fft, Rows::last>(w, there.t);
    }
}
