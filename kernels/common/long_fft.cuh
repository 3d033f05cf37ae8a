// What the passes of a long transform add to transforms of columns and rows: the factors between two passes, and rows
// that are written across.
//
// N = A W points are taken as a matrix of A rows and W columns (Bailey's four-step algorithm, "FFTs in External or
// Hierarchical Memory", 1990). Point n of the transform is element (a, w) of the matrix, n = a W + w. The first pass
// transforms the columns and multiplies frequency k of column w by exp(-2 pi i k w / N). The second pass transforms the
// rows: frequency l of row k is frequency k + A l of the whole.
#pragma once

#include "any_fft.cuh"

// Numbers from row to row of a matrix between two passes: rows of W numbers begin at multiples of 128 bytes
template <class T>
__device__ constexpr int row_pitch(int W) {
    constexpr int line = 128 / sizeof(Complex<T>);
    return (W + line - 1) / line * line;
}

// The place of the lowest binary digit that is set, of numbers below 32
__device__ constexpr int lowest_digit(int n) { return n & 1 ? 0 : n & 2 ? 1 : n & 4 ? 2 : n & 8 ? 3 : 4; }

// Elements o of a column, each times exp(-2 pi i o column / (N W)). Factors of those that follow each other are in
// geometric progression, so that they are products of few exact ones, by the binary digits of the element. The factor
// of every second digit is the square of the one before.
template <class Points, int W, class T>
__device__ __forceinline__ void twiddle(Complex<T>* v, unsigned t, unsigned column) {
    constexpr int R = Points::radix, N = Points::N;
    static_assert(R <= 32, "numbers of a butterfly have five digits");
    static_assert(N * W <= 1 << 25, "half of the points is a number that float holds");
    Complex<T> digit[5], power[R];  // few powers are needed again
#pragma unroll
    for (int k = 0; 1 << k < R; ++k) digit[k] = k % 2 ? digit[k - 1] * digit[k - 1] : root<T, R * W>(column << k);
    Points::for_each(t, [&](int k, unsigned o) {
        const int q = k % R;
        power[q] = q ? power[q & (q - 1)] * digit[lowest_digit(q)] : root<T, N * W>(o * column);
        v[k] = v[k] * power[q];
    });
}

// Which of W neighbouring columns a thread has, by tiles of C
template <class Fft, int W, int C>
struct Column {
    unsigned problem, at, t;
    bool exists;

    // Threads past the end transform the last column again and keep quiet
    __device__ static Column of_this_thread() {
        constexpr unsigned tiles = (W + C - 1) / C;
        const unsigned column = blockIdx.x % tiles * C + threadIdx.x % C;
        const bool works = !Fft::spare || threadIdx.x < Fft::G * C, exists = W % C == 0 || column < W;
        const unsigned t = threadIdx.x / C;
        return {blockIdx.x / tiles, exists ? column : W - 1, works ? t : kNoThread + t % Fft::G, works && exists};
    }
};

// Who has a row, and which of its threads
struct Lane {
    unsigned t, row;
};

// Transforms of C rows by G threads each. Before the transform neighbouring threads have neighbouring elements of a
// row, so that a warp reads along it; behind it they have neighbouring rows, so that a warp writes across them. Where a
// large prime is convolved, neighbouring threads have neighbouring rows all along, of which a warp reads parts of 32
// bytes and more where C is small.
template <class Core_, int C_>
struct RowsOf {
    using Core = Core_;
    using Fft = typename Core::Fft;
    using Word = typename Fft::Word;
    static constexpr bool turns = !Core::convolves;
    static constexpr int C = C_, G = Fft::G, last = Fft::last, lanes = Fft::banks;
    // Words from row to row modulo the banks, with which lanes that read across the rows use different banks
    static constexpr int apart = C < lanes ? lanes / C : 1;
    static constexpr int skipped = ((apart - Fft::padded()) % lanes + lanes) % lanes;
    static constexpr int pitch = !turns ? Core::pitch : last == 0 ? Fft::N : Fft::padded() + skipped;
    static constexpr int bytes = pitch * C * sizeof(Word);

    __device__ static Lane loaded(unsigned thread) {
        if (!turns) return across(thread);
        return thread < G * C ? Lane{thread % G, thread / G} : Lane{kNoThread + thread % G, 0};
    }
    __device__ static Lane stored(unsigned thread) {
        return last == 0 ? loaded(thread) : across(thread);  // else nothing changes hands
    }
    __device__ static Lane across(unsigned thread) {
        return {thread < G * C ? thread / C : kNoThread + thread / C % G, thread % C};
    }
};

// The results of a stage come to where the next stage wants them, `part` by part; to other threads before the last one
template <class Rows, int stage, class T, class Part>
__device__ __forceinline__ void exchange_rows(Complex<T> (&v)[Rows::Fft::held(stage)],
                                              Complex<T> (&w)[Rows::Fft::held(stage + 1)], typename Rows::Word* room,
                                              bool in_use, Part part) {
    using Fft = typename Rows::Fft;
    constexpr bool turns = stage + 1 == Rows::last;
    constexpr int together = turns ? 2 * kWarp : Fft::together;
    const Lane gives = Rows::loaded(threadIdx.x), takes = turns ? Rows::stored(threadIdx.x) : gives;
    if (in_use) meet<together>();
    give<Fft, stage>(v, gives.t, room + gives.row * Rows::pitch, part);
    meet<together>();
    take<Fft, stage>(w, takes.t, room + takes.row * Rows::pitch, part);
}

// v, the points before stage `stage` of the row that this thread loaded, become those behind the last one of the row
// that it stores, in w. in_use: threads may still be reading the room.
template <class Rows, int stage, class T>
__device__ __forceinline__ void turned_fft(Complex<T> (&v)[Rows::Fft::held(stage)],
                                           Complex<T> (&w)[Rows::Fft::held(Rows::last)], typename Rows::Word* room,
                                           bool in_use) {
    using Fft = typename Rows::Fft;
    if constexpr (stage == Rows::last) {
        butterflies<Fft, stage>(v, Rows::stored(threadIdx.x).t);
#pragma unroll
        for (int k = 0; k < Fft::held(stage); ++k) w[k] = v[k];
    } else {
        butterflies<Fft, stage>(v, Rows::loaded(threadIdx.x).t);
        Complex<T> next[Fft::held(stage + 1)];
        if constexpr (Fft::split) {
            exchange_rows<Rows, stage>(v, next, room, in_use, [](Complex<T>& z) -> T& { return z.x; });
            exchange_rows<Rows, stage>(v, next, room, true, [](Complex<T>& z) -> T& { return z.y; });
        } else {
            exchange_rows<Rows, stage>(v, next, room, in_use, [](Complex<T>& z) -> Complex<T>& { return z; });
        }
        turned_fft<Rows, stage + 1>(next, w, room, true);
    }
}

// The same of all stages, whichever they are; table: of a convolution
template <class Rows, class T>
__device__ __forceinline__ void transform_rows(Complex<T> (&v)[Rows::Core::inputs], Complex<T> (&w)[Rows::Core::outputs],
                                               const Complex<T>* __restrict__ table) {
    extern __shared__ double2 shared[];
    typename Rows::Word* const room = reinterpret_cast<typename Rows::Word*>(shared);
    if constexpr (Rows::turns)
        turned_fft<Rows, 0>(v, w, room, false);
    else
        Rows::Core::run(v, w, Rows::loaded(threadIdx.x).t, room + threadIdx.x % Rows::C, table);
}
