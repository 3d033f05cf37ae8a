// Long complex transforms of the rows of x, shape (batch, N), out of place, in two or three launches; inverse ones are
// scaled by 1 / N. The method stands in passes.cuh.
//
// Tunables: passes; N1 points in a column, and P1, L1, r1 of the columns; P2, L2, r2 of the last pass; a tile has
// C = P L / M columns. split: exchanges real and imaginary parts in turn, through half of the shared memory.
// Registers are bounded so that a multiprocessor holds 16 Ki points, 12 Ki for P = 8: bytes in flight are what a pass
// needs.
#include "passes.cuh"

// x and y may be the same: a block writes where it alone has read.
template <int M, int W, int C, int P, int r, int share, int turn, bool split, bool inverse, int blocks>
__global__ void __launch_bounds__(M * C / P, blocks) columns(const float2* x, float2* y) {
    using Pass = Columns<M, W, C, P, r, share, turn, split, inverse>;
    extern __shared__ float2 shared[];
    const unsigned tile = blockIdx.x % Pass::tiles;
    const long long matrix = (long long)(blockIdx.x / Pass::tiles) * M * W;
    float2 v[P];
    Pass::template load<false>(v, x + matrix, tile);
    tile_fft<typename Pass::Tile>(v, threadIdx.x, reinterpret_cast<typename Pass::Tile::Word*>(shared), false, [] {});
    Pass::store(v, y + matrix, tile);
}

template <int N, int M, int D, int C, int P, int r, bool split, bool inverse, int blocks>
__global__ void __launch_bounds__(M * C / P, blocks) rows(const float2* __restrict__ x, float2* __restrict__ y) {
    using Pass = Rows<N, M, D, C, P, r, split, inverse>;
    extern __shared__ float2 shared[];
    float2 v[P];
    Pass::template load<false>(v, x + (long long)blockIdx.x * (M * C));
    tile_fft<typename Pass::Tile>(v, threadIdx.x, reinterpret_cast<typename Pass::Tile::Word*>(shared), false, [] {});
    Pass::template store<false>(v, y + (long long)(blockIdx.x / Pass::tiles) * N, blockIdx.x % Pass::tiles);
}
