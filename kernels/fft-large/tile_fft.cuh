// Transforms of the columns of a tile by a block: M rows of C neighbouring columns, P points per thread.
//
//     using Tile = TileFft<M, C, P, Ordered<M, r, Order::falling>, float2, turn>;
//     float2 v[P];  // v[j] is row t + j G of column c, where {t, c} = Tile::loaded(threadIdx.x)
//     tile_fft<Tile>(v, threadIdx.x, room, in_use, freed);
//                   // v[j] is frequency t + j G of column c, where {t, c} = Tile::transformed(threadIdx.x)
//
// Neighbouring threads have neighbouring columns, so that a warp reads and writes C points in a row. Who has what may
// change at an exchange for nothing; at the last one it does, if so wanted: from then on `turn` neighbouring threads
// have neighbouring frequencies of one column, and write turn * C points in a row where a column's `turn` frequencies
// lie together.
//
// room: Tile::words words. in_use: threads may still be reading it. freed() is called when this thread has read from
// the room for the last time.
#pragma once
#include "block_fft.cuh"

struct Lane {
    unsigned t, c;
};

template <int M_, int C_, int P_, class Stages_, class Word_, int turn_ = 1>
struct TileFft {
    using Stages = Stages_;
    using Word = Word_;
    static constexpr int M = M_, C = C_, P = P_, G = M / P, L = G * C;
    static constexpr int turn = smaller(turn_, G);
    static constexpr int banks = 128 / int(sizeof(Word));
    static constexpr int line = larger(1, banks / C);  // rows that fill all banks
    static constexpr int words = M * C / 8 * (turn > 1 ? 11 : 9);  // with what is skipped between rows

    __device__ static constexpr Lane loaded(unsigned thread) { return {thread / C, thread % C}; }
    __device__ static constexpr Lane transformed(unsigned thread) {
        return {thread / (turn * C) * turn + thread % turn, thread / turn % C};
    }
};

// Words of the rows while the results of the stage of radix R, which follows stages of product Ns, are exchanged.
// Threads write `line` rows at a time, which are next to each other or, at a first stage, Ns R apart; they read `line`
// rows that are next to each other or, turned, as many as there are threads in a turn. Words skipped after each line
// and after each block of Ns R rows keep all of them in different banks.
// Rows that are summed have no bit in common, which makes the function additive: a thread's place, and constants.
template <class Tile, int Ns, int R>
struct RowPlaces {
    static constexpr bool last = Ns * R * Tile::Stages::at(Tile::Stages::count - 1) == Tile::M;
    static constexpr bool turned = last && Tile::turn > Tile::line;
    static constexpr int after_line = turned ? larger(1, Tile::banks / Tile::turn) : 0;
    static constexpr int block = larger(Tile::line, Ns * R);
    static constexpr int in_block = block / Tile::line * after_line;
    static constexpr int after_block =
        Ns < Tile::line && block == Ns * R ? (Ns * Tile::C - in_block) & (Tile::banks - 1) : 0;
    __device__ static constexpr unsigned at(unsigned row) {
        return row * Tile::C + row / Tile::line * after_line + row / block * after_block;
    }
    __device__ static constexpr unsigned butterfly(unsigned b) { return at(b / Ns * (Ns * R) + b % Ns); }
    static_assert(at(Tile::M - 1) + Tile::C <= Tile::words, "a tile keeps to its room");
};

// The results of a stage come to where the next stage wants them, `part` by part
template <class Tile, int Ns, int R, class Part>
__device__ __forceinline__ void exchange_rows(float2 (&v)[Tile::P], Lane writes, Lane reads, typename Tile::Word* room,
                                         bool in_use, Part part) {
    constexpr int P = Tile::P, G = Tile::G;
    using At = RowPlaces<Tile, Ns, R>;
    typename Tile::Word* const to = room + At::butterfly(writes.t) + writes.c;
    const typename Tile::Word* const from = room + At::at(reads.t) + reads.c;
    if (in_use) __syncthreads();
#pragma unroll
    for (int i = 0; i < P / R; ++i) {
#pragma unroll
        for (int q = 0; q < R; ++q) to[At::butterfly(i * G) + At::at(q * Ns)] = part(v[i + q * (P / R)]);
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < P; ++j) part(v[j]) = from[At::at(j * G)];
}

// The stages from `stage` on, which follow stages of product Ns
template <class Tile, int stage = 0, int Ns = 1, class Freed>
__device__ __forceinline__ void tile_fft(float2 (&v)[Tile::P], unsigned thread, typename Tile::Word* room, bool in_use,
                                         Freed freed) {
    constexpr int R = Tile::Stages::at(stage), left = Tile::Stages::count - 1 - stage;
    static_assert(R <= Tile::P, "a thread holds whole butterflies");
    const Lane now = left ? Tile::loaded(thread) : Tile::transformed(thread);
    butterflies<Tile::P, Tile::G, Ns, R>(v, now.t);
    if constexpr (left) {
        const Lane next = left > 1 ? now : Tile::transformed(thread);
        if constexpr (sizeof(typename Tile::Word) == sizeof(float2)) {
            exchange_rows<Tile, Ns, R>(v, now, next, room, in_use, [](float2& z) -> float2& { return z; });
        } else {
            exchange_rows<Tile, Ns, R>(v, now, next, room, in_use, [](float2& z) -> float& { return z.x; });
            exchange_rows<Tile, Ns, R>(v, now, next, room, true, [](float2& z) -> float& { return z.y; });
        }
        if constexpr (left == 1) freed();
        tile_fft<Tile, stage + 1, Ns * R>(v, thread, room, true, freed);
    } else {
        static_assert(Ns * R == Tile::M, "the radices multiply up to M");
        static_assert(Tile::Stages::count > 1 || Tile::turn == 1, "threads change columns at an exchange only");
    }
}
