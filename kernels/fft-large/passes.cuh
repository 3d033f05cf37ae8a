// The passes of a long transform over device memory.
//
// N = M W points are taken as a matrix of M rows and W columns (Bailey's four-step algorithm). One pass transforms the
// columns: element (n, w) becomes frequency k of column w, times exp(-2 pi i k w / N). A second pass transforms the W
// elements of each k, whose frequency l is that of k + M l of the whole.
//
// A block of the first pass holds C columns and reads C points in a row. It writes them where the second pass, whose
// block holds C' rows k, finds its tile in one piece: C' rows that are next to each other lie interleaved, so that the
// first pass writes C C' points in a row, and the second pass reads in order. Its writes are C' points in a row.
// With three passes, the second treats the interleaved rows as the first treats the problem.
//
// Both passes load v[j] = row t + j G of a tile, transform it with tile_fft<Pass::Tile>, and store it.
#pragma once
#include "tile_fft.cuh"
#include "twiddle.cuh"

// Columns of a matrix of M rows and W columns; `share` neighbouring columns are of the same index w. Where `turn` > 1,
// that many neighbouring frequencies are stored interleaved; else each goes to the place of a row.
template <int M, int W, int C, int P, int r, int share, int turn, bool split, bool inverse>
struct Columns {
    using Tile = TileFft<M, C, P, Ordered<M, r, Order::falling>, typename WordOf<!split>::type, turn>;
    static constexpr int tiles = W / C, G = Tile::G, L = Tile::L;

    template <bool streamed>
    __device__ static __forceinline__ void load(float2 (&v)[P], const float2* matrix, unsigned tile) {
        const Lane at = Tile::loaded(threadIdx.x);
        const float2* const from = matrix + tile * C + at.t * W + at.c;
#pragma unroll
        for (int j = 0; j < P; ++j)
            v[j] = swapped<inverse>(streamed ? __ldcs(from + j * (G * W)) : from[j * (G * W)]);
    }

    // from a copy of the tile alone
    __device__ static __forceinline__ void load_tile(float2 (&v)[P], const float2* tile) {
#pragma unroll
        for (int j = 0; j < P; ++j) v[j] = swapped<inverse>(tile[threadIdx.x + j * L]);
    }

    __device__ static __forceinline__ void store(float2 (&v)[P], float2* matrix, unsigned tile) {
        const Lane at = Tile::transformed(threadIdx.x);
        const unsigned column = tile * C + at.c;
        twiddle<M * (W / share), G>(v, column / share, at.t);
        float2* const to = matrix + at.t / turn * (W * turn) + column * turn + at.t % turn;
#pragma unroll
        for (int j = 0; j < P; ++j) to[j * G / turn * (W * turn) + j * G % turn] = v[j];
    }
};

// Transforms of length M, C of them interleaved in a tile. A problem of N points is N1 / C groups, of D tiles each, of
// C out of N1: tile d of group g holds the frequencies g C + c + N1 (d + D k) of the problem.
template <int N, int M, int D, int C, int P, int r, bool split, bool inverse>
struct Rows {
    using Tile = TileFft<M, C, P, Ordered<M, r, Order::falling>, typename WordOf<!split>::type>;
    static constexpr int N1 = N / M / D, tiles = N / M / C, G = Tile::G, L = Tile::L;

    // fresh: asks the second-level cache, which has what other blocks wrote during this launch
    template <bool fresh>
    __device__ static __forceinline__ void load(float2 (&v)[P], const float2* tile) {
        const float2* const from = tile + threadIdx.x;
#pragma unroll
        for (int j = 0; j < P; ++j) v[j] = fresh ? __ldcg(from + j * L) : from[j * L];
    }

    template <bool streamed>
    __device__ static __forceinline__ void store(const float2 (&v)[P], float2* problem, unsigned tile) {
        const Lane at = Tile::transformed(threadIdx.x);
        float2* const to = problem + tile / D * C + tile % D * N1 + at.t * (N / M) + at.c;
        constexpr float scale = inverse ? 1.0f / N : 1.0f;
#pragma unroll
        for (int j = 0; j < P; ++j) {
            const float2 z = swapped<inverse>(make_float2(v[j].x * scale, v[j].y * scale));
            if constexpr (streamed)
                __stcs(to + j * (G * (N / M)), z);
            else
                to[j * (G * (N / M))] = z;
        }
    }
};
