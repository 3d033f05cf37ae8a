// Long complex transforms in two passes whose tiles the copy engine brings to shared memory: a thread asks for a tile,
// and none waits for single loads of short runs. The method stands in passes.cuh; sm_90.
//
// Blocks walk over tiles. Launched with fewer blocks than tiles (`stay`), a block asks for its next tile as soon as the
// last exchange of the present one has been read, so that loads overlap with arithmetic and stores though registers
// leave room for one block in a multiprocessor.
#include "passes.cuh"
#include "tensor.cuh"

template <int M, int W, int C, int P, int r, int turn, bool inverse, int blocks>
__global__ void __launch_bounds__(M * C / P, blocks)
    columns_tma(const __grid_constant__ TensorMap map, const float2* __restrict__ x, float2* __restrict__ y, int tiles) {
    using Pass = Columns<M, W, C, P, r, 1, turn, false, inverse>;
    extern __shared__ __align__(128) float2 shared[];
    __shared__ unsigned long long arrived;
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
        await(&arrived, phase);
        phase ^= 1;
        float2 v[P];
#pragma unroll
        for (int j = 0; j < P; ++j) v[j] = swapped<inverse>(shared[threadIdx.x + j * Pass::L]);
        tile_fft<typename Pass::Tile>(v, threadIdx.x, shared, true, [&] {
            const int next = tile + gridDim.x;
            if (next >= tiles) return;
            __syncthreads();
            if (threadIdx.x == 0) ask(next);
        });
        Pass::store(v, y + (long long)(tile / Pass::tiles) * M * W, tile % Pass::tiles);
    }
}

template <int N, int M, int C, int P, int r, bool inverse, int blocks>
__global__ void __launch_bounds__(M * C / P, blocks)
    rows_bulk(const float2* __restrict__ x, float2* __restrict__ y, int tiles) {
    using Pass = Rows<N, M, 1, C, P, r, false, inverse>;
    extern __shared__ __align__(128) float2 shared[];
    __shared__ unsigned long long arrived;
    const auto ask = [&](int tile) {
        fetch(shared, x + (long long)tile * (M * C), M * C * sizeof(float2), &arrived);
    };
    if (threadIdx.x == 0) {
        make_barrier(&arrived);
        ask(blockIdx.x);
    }
    __syncthreads();
    unsigned phase = 0;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        await(&arrived, phase);
        phase ^= 1;
        float2 v[P];
        Pass::template load<false>(v, shared);
        tile_fft<typename Pass::Tile>(v, threadIdx.x, shared, true, [&] {
            const int next = tile + gridDim.x;
            if (next >= tiles) return;
            __syncthreads();
            if (threadIdx.x == 0) ask(next);
        });
        Pass::template store<false>(v, y + (long long)(tile / Pass::tiles) * N, tile % Pass::tiles);
    }
}
