// Transforms of any length by G threads of a block: of mixed radices, and by convolutions of a prime's points.
//
// All offer the same: numbers are laid out before and after a transform as for_inputs and for_outputs tell. Where
// is_padded, elements from N on are there too: inputs are zero, and outputs mean nothing. Next is a transform of the
// same length whose inputs are laid out as these outputs. PairedInputs and PairedOutputs are this transform with points
// o and N - o in one thread, before it or after it, where butterflies come in pairs. in_use: see mixed_fft.cuh.
// first_radix, last_radix: elements of a thread's butterfly are N / radix apart, as far as they follow each other.
// input_below(k, o, bound), output_below: whether element o of register k is below a bound, known to the compiler of most.
//
// A length N = p columns, p a large prime, has a first stage of radix p, which needs no twiddle factors: transforms of
// the `columns` interleaved columns of p points, each by a cyclic convolution of K = M / columns points, a product of
// small primes. The stages behind it, `Rest`, are as ever. Both ways of convolving are two transforms of K points.
//
// Bluestein (1970): with w[n] = exp(-i pi n^2 / p), frequency k is w[k] times the convolution of x[n] w[n] with
// conj w, both padded to K >= given + wanted - 1. p may be any number, of whose points the first `given` are not zero,
// and of whose frequencies the first `wanted` mean something. The table is the transform of conj w by K, and w behind it.
// Rader (1968): with a generator g of the numbers modulo p, frequency g^-i is x[0] and element i of the convolution of
// x[g^j] with exp(-2 pi i g^-j / p), where K = p - 1. Frequency 0 is the sum of all. The table is the transform of the
// latter by K.
#pragma once

#include "mixed_fft.cuh"

template <class T, int N_, int M, int G_, class List, bool split, bool spare, int stride = 1, int columns = 1,
          class Rest = Stages<1>, int paired = kNoStage>
struct Mixed {
    using Real = T;
    using Fft = MixedFft<T, N_, G_, List, split, spare, stride, paired>;
    using Next = Mixed<T, N_, M, G_, Reversed<List>, split, spare, stride>;
    template <int stage>
    using PairedAt = Mixed<T, N_, M, G_, List, split, spare, stride, 1, Rest,
                           Fft::butterflies(stage) == 2 * G_ ? stage : kNoStage>;
    using PairedInputs = PairedAt<0>;
    using PairedOutputs = PairedAt<List::count - 1>;
    using Word = typename Fft::Word;
    static constexpr int N = N_, G = G_, pitch = Fft::pitch, inputs = Fft::held(0), outputs = Fft::held(Fft::last);
    static constexpr int first_radix = List::at(0), last_radix = List::at(Fft::last);
    static constexpr bool is_padded = false, has_spare = spare, convolves = false, of_half = false;

    template <class F>
    __device__ static __forceinline__ void for_inputs(unsigned t, F f) {
        for_points<Fft, 0>(t, f);
    }
    template <class F>
    __device__ static __forceinline__ void for_outputs(unsigned t, F f) {
        if (Fft::writes(t)) for_points<Fft, Fft::last>(t, f);
    }
    __device__ static __forceinline__ bool input_below(int k, unsigned o, unsigned bound) {
        return is_below<Fft, 0>(k, o, bound);
    }
    __device__ static __forceinline__ bool output_below(int k, unsigned o, unsigned bound) {
        return is_below<Fft, Fft::last>(k, o, bound);
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

// ---- powers of a generator ---------------------------------------------------------------------------------------

// g^e modulo p < 2^16
__device__ constexpr unsigned power_of(unsigned g, unsigned e, unsigned p) {
    unsigned power = 1;
    for (; e; e /= 2, g = g * g % p)
        if (e % 2) power = power * g % p;
    return power;
}

// The least number whose powers are all from 1 to p - 1, p a prime
__device__ constexpr unsigned generator_of(unsigned p) {
    for (unsigned g = 1; g < p; ++g) {
        bool generates = true;
        for (unsigned left = p - 1, q = 2; left > 1; ++q)
            if (left % q == 0) {
                generates = generates && power_of(g, (p - 1) / q, p) != 1;
                while (left % q == 0) left /= q;
            }
        if (generates) return g;
    }
    return 0;
}

// g^(step q) modulo p for q < R, and g^(2^bit)
template <unsigned p, unsigned g, unsigned step, int R>
struct Powers {
    unsigned apart[R], doubled[16];
    __device__ constexpr Powers() : apart(), doubled() {
        for (int q = 0; q < R; ++q) apart[q] = power_of(g, step * q, p);
        for (int bit = 0; bit < 16; ++bit) doubled[bit] = power_of(g, 1u << bit, p);
    }
};

// ---- a first stage that convolves --------------------------------------------------------------------------------

template <bool rader, class T, int N_, int M, int G_, class List, bool split, bool spare, int stride, int columns,
          class Rest_, int given = N_ / columns, int wanted = N_ / columns>
struct Convolution {
    using Real = T;
    using Fft = MixedFft<T, M, G_, List, split, spare, stride, kNoStage, columns>;
    // Begins where Fft ends, and ends where it begins
    using Back = MixedFft<T, M, G_, Reversed<List>, split, spare, stride, kNoStage, columns>;
    using Rest = MixedFft<T, N_, G_, Rest_, split, spare, stride>;
    using Next = Convolution;
    using PairedInputs = Convolution;
    using PairedOutputs = Convolution;
    using Word = typename Fft::Word;
    static constexpr int N = N_, G = G_, p = N / columns, K = M / columns;
    static constexpr bool alone = columns == 1, of_half = given < p;
    static constexpr int most = Fft::pitch > Back::pitch ? Fft::pitch : Back::pitch;
    static constexpr int least = alone ? N : Rest::pitch, pitch = least > most ? least : most;
    // Numbers of a thread: x[0] or frequency 0 of columns, and behind them those that are convolved
    static constexpr int convolved = Fft::held(0), middle = Fft::held(Fft::last);
    static constexpr int firsts = rader ? (columns + G - 1) / G : 0, held = convolved + firsts;
    // Points that lie apart in powers of the generator change hands in the room: lanes read and write lines
    static constexpr bool gathers = rader && columns < 8, lines = rader && alone;
    static constexpr int in_order = (N + G - 1) / G, inputs = gathers ? in_order : held;
    static constexpr int outputs = lines ? in_order : alone ? held : Rest::held(alone ? 0 : Rest::last);
    static constexpr int first_radix = 1, last_radix = alone ? 1 : Rest_::at(Rest::last);
    static constexpr bool is_padded = !rader, has_spare = spare, convolves = true;
    static_assert(p * columns == N && K * columns == M, "all columns are alike");
    static_assert(rader ? K == p - 1 : K >= given + wanted - 1, "a convolution must not meet itself");
    static_assert(alone || Rest_::at(0) == p, "the other stages follow");

    // f(register, row, column) for the points of columns that a thread convolves: rows g^i modulo p are neighbours
    template <unsigned g, class F>
    __device__ static __forceinline__ void for_powers(unsigned t, F f) {
        constexpr int R = List::at(0), step = K / R, last = (Fft::butterflies(0) - 1) / columns;
        constexpr Powers<p, g, step, R> powers;
#pragma unroll
        for (int i = 0; i < Fft::turns(0); ++i) {
            const unsigned b = Fft::base(0, i, t) + Fft::more(0, i), exponent = b / columns;
            if (Fft::may_lack(0, i) && b >= Fft::butterflies(0)) continue;
            unsigned power = 1;
#pragma unroll
            for (int bit = 0; last >> bit; ++bit)
                if (exponent >> bit & 1) power = power * powers.doubled[bit] % p;
#pragma unroll
            for (int q = 0; q < R; ++q) f(firsts + i * R + q, power * powers.apart[q] % p, b % columns);
        }
    }
    // f(register, column) for the columns of which a thread has the first point
    template <class F>
    __device__ static __forceinline__ void for_firsts(unsigned t, F f) {
#pragma unroll
        for (int i = 0; i < firsts; ++i) {
            const unsigned column = Fft::base(0, i, t) + Fft::more(0, i);
            if (column < columns) f(i, column);
        }
    }
    // f(register, frequency, column) for what a thread holds behind the convolution
    template <class F>
    __device__ static __forceinline__ void for_frequencies(unsigned t, F f) {
        if constexpr (rader) {
            for_powers<power_of(generator_of(p), p - 2, p)>(t, f);
            for_firsts(t, [&](int k, unsigned column) { f(k, 0, column); });
        } else {
            for_points<Fft, 0>(t, [&](int k, unsigned o) {
                if (o < N) f(k, o / columns, o % columns);
            });
        }
    }

    // f(register, element) for every G-th
    template <class F>
    __device__ static __forceinline__ void for_lines(unsigned t, F f) {
#pragma unroll
        for (int i = 0; i < in_order; ++i) {
            const unsigned o = Fft::base(0, i, t) + i * G;
            if (o < N) f(i, o);
        }
    }
    template <class F>
    __device__ static __forceinline__ void for_points_convolved(unsigned t, F f) {
        if constexpr (rader) {
            for_powers<generator_of(p)>(t, [&](int k, unsigned row, unsigned column) { f(k, row * columns + column); });
            for_firsts(t, f);
        } else {
            for_points<Fft, 0>(t, f);
        }
    }
    template <class F>
    __device__ static __forceinline__ void for_inputs(unsigned t, F f) {
        if constexpr (gathers)
            for_lines(t, f);
        else
            for_points_convolved(t, f);
    }
    template <class F>
    __device__ static __forceinline__ void for_outputs(unsigned t, F f) {
        if (!Fft::writes(t)) return;
        if constexpr (!alone)
            for_points<Rest, Rest::last>(t, f);
        else if constexpr (lines)
            for_lines(t, f);
        else
            for_points<Fft, 0>(t, f);
    }
    __device__ static __forceinline__ bool input_below(int, unsigned o, unsigned bound) { return o < bound; }
    __device__ static __forceinline__ bool output_below(int k, unsigned o, unsigned bound) {
        if constexpr (!alone)
            return is_below<Rest, Rest::last>(k, o, bound);
        else
            return o < bound && (!lines || k * G < bound);
    }

    // What of a number passes the room in which turn: its real and then its imaginary part, or all
    __device__ static __forceinline__ Word& part(Complex<T>& z, int turn) {
        if constexpr (split)
            return turn ? z.y : z.x;
        else
            return z;
    }
    // What give(turn) writes to the room, take(turn) reads
    template <class Give, class Take>
    __device__ static __forceinline__ void pass(unsigned t, bool in_use, Give give, Take take) {
#pragma unroll
        for (int turn = 0; turn < (split ? 2 : 1); ++turn) {
            if (in_use || turn) meet<Fft::together>();
            if (Fft::writes(t)) give(turn);
            meet<Fft::together>();
            take(turn);
        }
    }

    __device__ static __forceinline__ void run(Complex<T> (&v)[inputs], Complex<T> (&w)[outputs], unsigned t,
                                               Word* room, const Complex<T>* __restrict__ table,
                                               bool in_use = false) {
        Complex<T> u[held], points[convolved], spectrum[middle];
        if constexpr (gathers) {
            pass(
                t, in_use,
                [&](int turn) { for_lines(t, [&](int k, unsigned o) { room[o * stride] = part(v[k], turn); }); },
                [&](int turn) {
                    for_points_convolved(t, [&](int k, unsigned o) { part(u[k], turn) = room[o * stride]; });
                });
            in_use = true;
        } else {
#pragma unroll
            for (int k = 0; k < held; ++k) u[k] = v[k];
        }
#pragma unroll
        for (int k = 0; k < convolved; ++k) points[k] = u[firsts + k];
        if constexpr (!rader) {
            for_points<Fft, 0>(t, [&](int k, unsigned o) {
                if (o < N) points[k] = points[k] * table[K + o / columns];
            });
        }
        mixed_fft<Fft>(points, spectrum, t, room, in_use);
        t = afresh(t);
        for_points<Fft, Fft::last>(t, [&](int k, unsigned o) {
            Complex<T> z = spectrum[k] * table[o / columns];
            // A thread has frequency 0 of the columns whose first points it has: it goes to all frequencies but one
            const int i = k / List::at(Fft::last);
            if (rader && i < firsts && k % List::at(Fft::last) == 0 && o < columns) {
                z = z + u[i];
                u[i] = u[i] + spectrum[k];
            }
            spectrum[k] = swapped<true>(z);
        });
        mixed_fft<Back>(spectrum, points, t, room, true);
        t = afresh(t);
#pragma unroll
        for (int k = 0; k < convolved; ++k) u[firsts + k] = swapped<true>(points[k]);
        if constexpr (!rader) {
            for_points<Fft, 0>(t, [&](int k, unsigned o) {
                if (o < N) u[k] = u[k] * table[K + o / columns];
            });
        }
        // Frequencies of the columns come to where the next stage wants them, or in order
        constexpr int apart = alone ? p : p + Rest::skip(0);
        const auto give = [&](int turn) {
            for_frequencies(t, [&](int k, unsigned frequency, unsigned column) {
                room[(column * apart + frequency) * stride] = part(u[k], turn);
            });
        };
        if constexpr (lines) {
            pass(t, true, give, [&](int turn) {
                for_lines(t, [&](int k, unsigned o) { part(w[k], turn) = room[o * stride]; });
            });
        } else if constexpr (alone) {
#pragma unroll
            for (int k = 0; k < outputs; ++k) w[k] = u[k];
        } else {
            Complex<T> next[1][Rest::held(1)], last[1][outputs];
            pass(t, true, give, [&](int turn) {
                take<Rest, 0>(next[0], t, room, [turn](Complex<T>& z) -> Word& { return part(z, turn); });
            });
            mixed_fft<Rest, 1>(next, last, afresh(t), room, true);
#pragma unroll
            for (int k = 0; k < outputs; ++k) w[k] = last[0][k];
        }
    }

    template <int rows>
    __device__ static __forceinline__ void run(Complex<T> (&v)[rows][inputs], Complex<T> (&w)[rows][outputs],
                                               unsigned t, Word* room, const Complex<T>* __restrict__ table) {
#pragma unroll
        for (int row = 0; row < rows; ++row) run(v[row], w[row], t, room + row * (stride * pitch), table);
    }

    // The table, by the threads of one problem of one column
    __device__ static __forceinline__ void tabulate(unsigned t, Word* room, Complex<T>* table) {
        static_assert(alone, "the table is that of a column");
        Complex<T> v[convolved], w[middle];
        if constexpr (rader) {
            for_powers<power_of(generator_of(p), p - 2, p)>(
                t, [&](int k, unsigned row, unsigned) { v[k - firsts] = scaled(root<T, p>(row), T(1.0 / K)); });
        } else {
            for_points<Fft, 0>(t, [&](int k, unsigned o) {
                const unsigned n = o < wanted ? o : K - o;
                const auto chirp = [](unsigned n) { return root<T, 2 * p>(n * n % (2 * p)); };
                v[k] = n < given || o < wanted ? scaled(conjugate(chirp(n)), T(1.0 / K)) : Complex<T>{0, 0};
                if (o < p && Fft::writes(t)) table[K + o] = chirp(o);
            });
        }
        mixed_fft<Fft>(v, w, t, room, false);
        if (Fft::writes(t)) for_points<Fft, Fft::last>(t, [&](int k, unsigned o) { table[o] = w[k]; });
    }
};

template <class T, int N, int M, int G, class List, bool split, bool spare, int stride = 1, int columns = 1,
          class Rest = Stages<N>>
using Bluestein = Convolution<false, T, N, M, G, List, split, spare, stride, columns, Rest>;
// Of real numbers to frequencies up to N / 2, and of those to numbers whose real parts are wanted
template <class T, int N, int M, int G, class List, bool split, bool spare, int stride = 1, int = 1,
          class Rest = Stages<N>>
using BluesteinToHalf = Convolution<false, T, N, M, G, List, split, spare, stride, 1, Rest, N, N / 2 + 1>;
template <class T, int N, int M, int G, class List, bool split, bool spare, int stride = 1, int = 1,
          class Rest = Stages<N>>
using BluesteinFromHalf = Convolution<false, T, N, M, G, List, split, spare, stride, 1, Rest, N / 2 + 1, N>;
template <class T, int N, int M, int G, class List, bool split, bool spare, int stride = 1, int columns = 1,
          class Rest = Stages<N>>
using Rader = Convolution<true, T, N, M, G, List, split, spare, stride, columns, Rest>;

// What a thread holds before a transform, or after it: for_each(t, f) calls f(register, element), `radix` of which
// follow each other, N / radix apart
template <class Core_, bool before>
struct Side {
    using Core = Core_;
    static constexpr int N = Core::N, held = before ? Core::inputs : Core::outputs, stage = before ? 0 : Core::Fft::last;
    static constexpr int radix = before ? Core::first_radix : Core::last_radix;
    static constexpr bool paired = Core::Fft::paired == stage;

    template <class F>
    __device__ static __forceinline__ void for_each(unsigned t, F f) {
        if constexpr (before)
            Core::for_inputs(t, f);
        else
            Core::for_outputs(t, f);
    }
    __device__ static __forceinline__ bool is_below(int k, unsigned o, unsigned bound) {
        return before ? Core::input_below(k, o, bound) : Core::output_below(k, o, bound);
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
