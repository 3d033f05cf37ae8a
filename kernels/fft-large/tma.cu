// The first pass of a long complex transform, whose tiles the copy engine brings to shared memory: one thread asks for
// a tile, and none waits for single loads of short runs. The method stands in passes.cuh; sm_90.
//
// Blocks walk over tiles. Launched with fewer blocks than tiles, a block asks for its next tile while it works on the
// present one, so that loads overlap with arithmetic and stores though registers leave room for one or two blocks in a
// multiprocessor. Either late, when the last exchange has been read, into the memory of the exchanges; or early, when
// the present tile has been read, next to a room in which exchanges take turns by real parts and imaginary parts.
#include "passes.cuh"
#include "tensor.cuh"

template <int M, int W, int C, int P, int r, int turn, bool early, bool inverse, int blocks>
__global__ void __launch_bounds__(M * C / P, blocks)
    columns_tma(const __grid_constant__ TensorMap map, const float2* __restrict__ x, float2* __restrict__ y,
                int tiles) {
    using Pass = Columns<M, W, C, P, r, 1, turn, early, inverse>;
    extern __shared__ __align__(128) float2 shared[];
    __shared__ unsigned long long arrived;
    auto* const room = reinterpret_cast<typename Pass::Tile::Word*>(shared + (early ? M * C : 0));
    const auto ask = [&](int tile) {
        const int row = tile / Pass::tiles * M, column = tile % Pass::tiles * C;
        fetch_tile<M, C, W, false>(shared, map, x, row, column, &arrived);
    };
    if (threadIdx.x == 0) {
        make_barrier(&arrived);
        ask(blockIdx.x);
    }
    __syncthreads();
    unsigned phase = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const int next = tile + gridDim.x;
        const auto ask_for_next = [&] {
            __syncthreads();  // behind all reads of what the copy overwrites
            if (threadIdx.x == 0 && next < tiles) ask(next);
        };
        await(&arrived, phase);
        phase ^= 1;
        float2 v[P];
        Pass::load_tile(v, shared);
        if (early) ask_for_next();
        tile_fft<typename Pass::Tile>(v, threadIdx.x, room, !early, [&] {
            if (!early && next < tiles) ask_for_next();
        });
        Pass::store(v, y + (long long)(tile / Pass::tiles) * M * W, tile % Pass::tiles);
    }
}
