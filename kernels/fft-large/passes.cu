// Long complex transforms of the rows of x, shape (batch, N), out of place, in two or three launches.
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
// Tunables: passes; N1 = M; P, L, r of the columns (P1, L1, r1) and of the last pass (P2, L2, r2), C = P L / M;
// split: exchanges real and imaginary parts in turn, through half of the shared memory; capped: registers bounded so
// that a multiprocessor holds 16 Ki points, as bytes in flight are what a pass at the speed of memory needs.
#include "tile_fft.cuh"
#include "twiddle.cuh"

template <bool split>
struct WordOf {
    using type = float2;
};
template <>
struct WordOf<true> {
    using type = float;
};

// Transforms of the columns of matrices of M rows and W columns; `share` neighbouring columns are of the same index.
// Where `turn` > 1, that many neighbouring frequencies are written interleaved; else to the place of the rows.
template <int M, int W, int C, int P, int r, int share, int turn, bool split, bool inverse, int blocks>
__global__ void __launch_bounds__(M * C / P, blocks) columns(const float2* __restrict__ x, float2* __restrict__ y) {
    using Tile = TileFft<M, C, P, Ordered<M, r, Order::falling>, typename WordOf<split>::type, turn>;
    constexpr unsigned tiles = W / C, G = Tile::G;
    extern __shared__ float2 shared[];
    const unsigned first = blockIdx.x % tiles * C;
    const long long matrix = (long long)(blockIdx.x / tiles) * M * W;

    const Lane in = Tile::loaded(threadIdx.x);
    const float2* const from = x + matrix + first + in.t * W + in.c;
    float2 v[P];
#pragma unroll
    for (int j = 0; j < P; ++j) v[j] = swapped<inverse>(from[j * (G * W)]);
    tile_fft<Tile>(v, threadIdx.x, reinterpret_cast<typename Tile::Word*>(shared), false, [] {});
    const Lane out = Tile::transformed(threadIdx.x);
    const unsigned column = first + out.c;
    twiddle<M * (W / share), G>(v, column / share, out.t);
    float2* const to = y + matrix + out.t / turn * (W * turn) + column * turn + out.t % turn;
#pragma unroll
    for (int j = 0; j < P; ++j) to[j * G / turn * (W * turn) + j * G % turn] = v[j];
}

// Transforms of length M, C of them interleaved in a tile. A problem of N points is N1 / C groups, of D tiles each, of C
// out of N1: tile d of group g holds the frequencies g C + c + N1 (d + D k) of the problem.
template <int N, int M, int D, int C, int P, int r, bool split, bool inverse, int blocks>
__global__ void __launch_bounds__(M * C / P, blocks) rows(const float2* __restrict__ x, float2* __restrict__ y) {
    using Tile = TileFft<M, C, P, Ordered<M, r, Order::falling>, typename WordOf<split>::type>;
    constexpr unsigned N1 = N / M / D, tiles = N / M / C, G = Tile::G;
    extern __shared__ float2 shared[];
    const unsigned tile = blockIdx.x % tiles;
    const float2* const from = x + (long long)blockIdx.x * (M * C) + threadIdx.x;
    float2 v[P];
#pragma unroll
    for (int j = 0; j < P; ++j) v[j] = from[j * Tile::L];
    tile_fft<Tile>(v, threadIdx.x, reinterpret_cast<typename Tile::Word*>(shared), false, [] {});
    const Lane out = Tile::transformed(threadIdx.x);
    float2* const to = y + (long long)(blockIdx.x / tiles) * N + tile / D * C + tile % D * N1 + out.t * (N / M) + out.c;
    constexpr float scale = inverse ? 1.0f / N : 1.0f;
#pragma unroll
    for (int j = 0; j < P; ++j) {
        const float2 z = swapped<inverse>(v[j]);
        to[j * (G * (N / M))] = make_float2(z.x * scale, z.y * scale);
    }
}
