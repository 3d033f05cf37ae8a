// Transforms of N points by the threads of a block that share the problem: butterflies in registers, exchanges
// through shared memory (Stockham's autosort algorithm).
//
//     using Fft = BlockFft<N, P, Radices<32, 16, 8>, float2, Padding::stage>;
//     float2 v[P];                          // v[j] is element t + j G of the problem; G = N / P threads, t < G
//     block_fft<Fft>(v, t, room, in_use);   // v[j] is frequency t + j G
//
// Stages: Radices<...>, whose product is N, or Ordered<N, r, order>. Each radix is at most P.
// Word: float2 exchanges whole numbers through Fft::pitch * 8 bytes a problem; float real parts and then imaginary
// parts through half of that (section V-C of "Performance Tuning for GPU-Embedded Systems").
// room: where the problem's words lie; the next problem's are Fft::pitch further. With stride > 1, `stride`
// problems lie interleaved: their rooms are one word apart, and stride * Fft::pitch hold them all.
// in_use: threads of the problem may still be reading the room.
// Threads: all G of a problem, and all of a block where G * stride > 32, as they meet at barriers. The G * stride
// threads that share (interleaved) problems are neighbours.
// Inverse transforms: swap real and imaginary parts before and after (see swapped).
#pragma once

#include "butterflies.cuh"
#include "threads.cuh"

// ---- lists of stages -----------------------------------------------------------------------------------------

template <int... radices>
struct Radices {
    static constexpr int count = sizeof...(radices);
    __device__ static constexpr int at(int stage) {
        const int list[] = {radices...};
        return list[stage];
    }
};

// Where the one radix goes that is left over when stages of radix r do not multiply up to N, or how all but one of
// the stages share what is left of N evenly, with r before them (falling) or behind them (rising).
enum class Order { first, last, falling, rising };

// As few stages as radices up to r allow
template <int N, int r, Order order>
struct Ordered {
    static constexpr int bits = log2_of(N), most = log2_of(r), count = (bits + most - 1) / most;
    __device__ static constexpr int at(int stage) {
        if (order == Order::first) return stage ? r : left_over;
        if (order == Order::last) return stage < count - 1 ? r : left_over;
        return falling(order == Order::falling ? stage : count - 1 - stage);
    }

   private:
    static constexpr int left_over = 1 << (bits - (count - 1) * most);
    __device__ static constexpr int falling(int stage) {
        if (stage == 0) return smaller(N, r);
        const int shared = bits - most, by = count - 1;
        return 1 << (shared / by + (stage - 1 < shared % by));
    }
};

// ---- where things lie while a stage's results are exchanged --------------------------------------------------

// Lanes write runs of elements, and read in order. Words are skipped so that runs start in different banks: one after
// each line of all banks (line), or as many as a run is long after each block of runs (stage).
enum class Padding { none, line, stage };

// What shared memory exchanges: whole numbers, or their parts in turn
template <bool whole>
struct WordOf {
    using type = float;
};
template <>
struct WordOf<true> {
    using type = float2;
};

template <int N_, int P_, class Stages_, class Word_, Padding padding_, int stride_ = 1>
struct BlockFft {
    using Stages = Stages_;
    using Word = Word_;
    static constexpr int N = N_, P = P_, G = N / P, stride = stride_;
    static constexpr Padding padding = padding_;
    static constexpr int line = larger(1, 128 / int(sizeof(Word)) / stride);  // elements that fill all banks
    static constexpr int padded = padding == Padding::none ? N : padding == Padding::line ? N + N / line : N + N / 8;
    // Elements from one problem to the next. Problems that share a warp start in different banks.
    static constexpr int pitch = stride == 1 && G < line ? padded + ((G - padded) & (2 * G - 1)) : padded;
    static_assert(P <= N && P <= 32, "angles inside of a thread are multiples of 1 / 32 turn");
};

// Places after the stage of radix R that follows stages of product Ns. Arguments that are summed have no bit in
// common, which makes both functions additive: a thread's place, and constants that cost no register.
template <class Fft, int Ns, int R>
struct Places {
    static constexpr int block = Fft::padding == Padding::stage ? larger(Fft::line, Ns * R) : Fft::line;
    static constexpr int skipped = Fft::padding == Padding::none   ? 0
                                   : Fft::padding == Padding::line ? 1
                                   : Ns < Fft::line                ? smaller(Ns, block / 8)
                                                                   : 0;
    __device__ static constexpr unsigned element(unsigned o) { return (o + o / block * skipped) * Fft::stride; }
    __device__ static constexpr unsigned butterfly(unsigned b) { return element(b / Ns * (Ns * R) + b % Ns); }
    static_assert(element(Fft::N - 1) < Fft::padded * Fft::stride, "a problem keeps to its room");
};

// ---- the transform -------------------------------------------------------------------------------------------

// The results of a stage come to where the next stage wants them, `part` by part
template <class Fft, int Ns, int R, class Part>
__device__ __forceinline__ void exchange(float2 (&v)[Fft::P], unsigned t, typename Fft::Word* room, bool in_use,
                                         Part part) {
    constexpr int P = Fft::P, G = Fft::G;
    using At = Places<Fft, Ns, R>;
    typename Fft::Word* const to = room + At::butterfly(t);
    const typename Fft::Word* const from = room + At::element(t);
    if (in_use) meet<G * Fft::stride>();
#pragma unroll
    for (int i = 0; i < P / R; ++i) {
#pragma unroll
        for (int q = 0; q < R; ++q) to[At::butterfly(i * G) + At::element(q * Ns)] = part(v[i + q * (P / R)]);
    }
    meet<G * Fft::stride>();
#pragma unroll
    for (int j = 0; j < P; ++j) part(v[j]) = from[At::element(j * G)];
}

// The stages from `stage` on, which follow stages of product Ns
template <class Fft, int stage = 0, int Ns = 1>
__device__ __forceinline__ void block_fft(float2 (&v)[Fft::P], unsigned t, typename Fft::Word* room, bool in_use) {
    constexpr int R = Fft::Stages::at(stage);
    static_assert(R <= Fft::P, "a thread holds whole butterflies");
    butterflies<Fft::P, Fft::G, Ns, R>(v, t);
    if constexpr (stage + 1 < Fft::Stages::count) {
        if constexpr (sizeof(typename Fft::Word) == sizeof(float2)) {
            exchange<Fft, Ns, R>(v, t, room, in_use, [](float2& z) -> float2& { return z; });
        } else {
            exchange<Fft, Ns, R>(v, t, room, in_use, [](float2& z) -> float& { return z.x; });
            exchange<Fft, Ns, R>(v, t, room, true, [](float2& z) -> float& { return z.y; });
        }
        block_fft<Fft, stage + 1, Ns * R>(v, t, room, true);
    } else {
        static_assert(Ns * R == Fft::N, "the radices multiply up to N");
    }
}
