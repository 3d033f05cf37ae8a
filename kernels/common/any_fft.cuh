// Transforms of any length by G threads of a block: of mixed radices, or by Bluestein's algorithm.
//
// Both offer the same: numbers are laid out before and after a transform as for_inputs and for_outputs tell. Where
// is_padded, elements from N on are there too: inputs are zero, and outputs mean nothing. Next is a transform of the
// same length whose inputs are laid out as these outputs. PairedInputs and PairedOutputs are this transform with points
// o and N - o in one thread, before it or after it, where butterflies come in pairs. in_use: see mixed_fft.cuh.
//
// Bluestein (1970): with w[n] = exp(-i pi n^2 / N), frequency k is w[k] times the convolution of x[n] w[n] with
// conj w. Both are padded to M >= 2 N - 1, a product of small primes, and multiplied as transforms of that length.
// The transform of conj w by M, and w behind it, are the table, which is the same for all problems.
#pragma once

#include "mixed_fft.cuh"

template <class T, int N_, int M, int G_, class List, bool split, bool spare, int stride = 1, int paired = kNoStage>
struct Mixed {
    using Real = T;
    using Fft = MixedFft<T, N_, G_, List, split, spare, stride, paired>;
    using Next = Mixed<T, N_, M, G_, Reversed<List>, split, spare, stride>;
    template <int stage>
    using PairedAt =
        Mixed<T, N_, M, G_, List, split, spare, stride, Fft::butterflies(stage) == 2 * G_ ? stage : kNoStage>;
    using PairedInputs = PairedAt<0>;
    using PairedOutputs = PairedAt<List::count - 1>;
    using Word = typename Fft::Word;
    static constexpr int N = N_, G = G_, pitch = Fft::pitch, inputs = Fft::held(0), outputs = Fft::held(Fft::last);
    static constexpr int first_radix = List::at(0), last_radix = List::at(Fft::last);
    static constexpr bool is_padded = false, has_spare = spare;

    template <class F>
    __device__ static __forceinline__ void for_inputs(unsigned t, F f) {
        for_points<Fft, 0>(t, f);
    }
    template <class F>
    __device__ static __forceinline__ void for_outputs(unsigned t, F f) {
        if (Fft::writes(t)) for_points<Fft, Fft::last>(t, f);
    }
    __device__ static __forceinline__ void run(Complex<T> (&v)[inputs], Complex<T> (&w)[outputs], unsigned t,
                                               Word* room, const Complex<T>*, bool in_use = false) {
        mixed_fft<Fft>(v, w, t, room, in_use);
    }
    template <int rows>
    __device__ static __forceinline__ void run(Complex<T> (&v)[rows][inputs], Complex<T> (&w)[rows][outputs],
                                               unsigned t, Word* room, const Complex<T>*) {
        mixed_fft<Fft, 0>(v, w, t, room, false);
    }
};

template <class T, int N_, int M, int G_, class List, bool split, bool spare, int stride = 1>
struct Bluestein {
    using Real = T;
    using Fft = MixedFft<T, M, G_, List, split, spare, stride>;
    // Begins where Fft ends, and ends where it begins
    using Back = MixedFft<T, M, G_, Reversed<List>, split, spare, stride>;
    using Next = Bluestein;
    using PairedInputs = Bluestein;
    using PairedOutputs = Bluestein;
    using Word = typename Fft::Word;
    static constexpr int N = N_, G = G_, pitch = Fft::pitch > Back::pitch ? Fft::pitch : Back::pitch;
    static constexpr int inputs = Fft::held(0), middle = Fft::held(Fft::last), outputs = inputs;
    static constexpr int first_radix = List::at(0), last_radix = first_radix;
    static constexpr bool is_padded = true, has_spare = spare;
    static_assert(M >= 2 * N - 1, "a convolution must not meet itself");

    template <class F>
    __device__ static __forceinline__ void for_inputs(unsigned t, F f) {
        for_points<Fft, 0>(t, f);
    }
    template <class F>
    __device__ static __forceinline__ void for_outputs(unsigned t, F f) {
        if (Fft::writes(t)) for_points<Fft, 0>(t, f);
    }
    __device__ static __forceinline__ void run(Complex<T> (&v)[inputs], Complex<T> (&w)[outputs], unsigned t,
                                               Word* room, const Complex<T>* __restrict__ table,
                                               bool in_use = false) {
        Complex<T> frequencies[middle];
        for_inputs(t, [&](int k, unsigned o) {
            if (o < N) v[k] = v[k] * table[M + o];
        });
        mixed_fft<Fft>(v, frequencies, t, room, in_use);
        t = afresh(t);
        for_points<Fft, Fft::last>(
            t, [&](int k, unsigned o) { frequencies[k] = swapped<true>(frequencies[k] * table[o]); });
        mixed_fft<Back>(frequencies, w, t, room, true);
        t = afresh(t);
        for_outputs(t, [&](int k, unsigned o) {
            if (o < N) w[k] = swapped<true>(w[k]) * table[M + o];
        });
    }

    template <int rows>
    __device__ static __forceinline__ void run(Complex<T> (&v)[rows][inputs], Complex<T> (&w)[rows][outputs],
                                               unsigned t, Word* room, const Complex<T>* __restrict__ table) {
#pragma unroll
        for (int row = 0; row < rows; ++row) run(v[row], w[row], t, room + row * (stride * pitch), table);
    }

    // The table, by the threads of one problem
    __device__ static __forceinline__ void tabulate(unsigned t, Word* room, Complex<T>* table) {
        Complex<T> v[inputs], w[middle];
        for_inputs(t, [&](int k, unsigned o) {
            const unsigned n = o < N ? o : M - o;
            const Complex<T> chirp = n < N ? root<T, 2 * N>(n * n % (2 * N)) : Complex<T>{0, 0};
            v[k] = scaled(conjugate(chirp), T(1.0 / M));
            if (o < N && Fft::writes(t)) table[M + o] = chirp;
        });
        mixed_fft<Fft>(v, w, t, room, false);
        if (Fft::writes(t)) for_points<Fft, Fft::last>(t, [&](int k, unsigned o) { table[o] = w[k]; });
    }
};

// Which problem of a block a thread has, and its number there
struct Seat {
    unsigned place, t;
};

template <class Core, int problems>
__device__ __forceinline__ Seat seat_of(unsigned thread) {
    const bool works = !Core::has_spare || thread < problems * Core::G;
    const unsigned t = thread % Core::G;
    return works ? Seat{thread / Core::G, t} : Seat{0, kNoThread + t};
}

// What Bluestein's algorithm looks up, by one block
template <class Core, int L, int shared_bytes>
__global__ void __launch_bounds__(L, 1) fft_table(Complex<typename Core::Real>* table) {
    static_assert(Core::pitch * sizeof(typename Core::Word) <= shared_bytes, "room for a problem");
    extern __shared__ double2 shared[];
    Core::tabulate(seat_of<Core, 1>(threadIdx.x).t, reinterpret_cast<typename Core::Word*>(shared), table);
}

// ---- rows of a block that go through shared memory ------------------------------------------------------------

// Short rows side by side, `count` numbers of which the first `valid` exist: lanes read and write lines of them
template <int L, int count, class Number>
__device__ __forceinline__ void copy_tile(Number* to, const Number* from, int valid) {
    constexpr int most = (count + L - 1) / L;
    Number numbers[most];
#pragma unroll
    for (int k = 0; k < most; ++k)
        if (k * L + int(threadIdx.x) < valid) numbers[k] = from[k * L + threadIdx.x];
#pragma unroll
    for (int k = 0; k < most; ++k)
        if (k * L + int(threadIdx.x) < valid) to[k * L + threadIdx.x] = numbers[k];
}
