// Long tridiagonal systems in three launches: tiles are reduced to two equations each, the system of these is solved,
// and tiles are read again and solved by the unknowns at their ends. That moves 36 bytes a row of float32, of which
// the second read finds in the second-level cache what the first one left there: tiles are taken in reverse.
//
// Arrays have the shape (batch, N); in place, x is d's memory. `ends` holds the equations of all tiles, `lasts` the last
// unknown of each.
#include "tile.cuh"

template <class Shape, Access loading, Access storing>
__device__ __forceinline__ typename Shape::T* memory_of_warp() {
    extern __shared__ float4 shared[];
    return reinterpret_cast<typename Shape::T*>(shared) +
           threadIdx.x / kWarp * tile_elements<Shape>(loading, storing);
}

// One block reduces one tile of P L rows.
template <class T, int N, int P, int L, Access load, int blocks, int aligned>
__global__ void __launch_bounds__(L, blocks)
    reduce_tiles(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, const T* __restrict__ d,
                 T* __restrict__ ends, int batch, RowLayout<5, aligned, false> layout) {
    using Here = Shape<T, N, P, L, P * L, decltype(layout)>;
    __shared__ Ends<T> places[L / kWarp];
    T rows[4][P];
    T* const memory = memory_of_warp<Here, load, Access::direct>();
    const Row<T> first = eliminated_tile<Here, load>({a, b, c, d}, batch, blockIdx.x, memory, rows, layout);
    TileReduction<T, L> tile;
    const Ends<T> own = tile.reduce(first, {rows[0][P - 1], rows[2][P - 1], rows[3][P - 1]}, places);
    Row<T>* const to = reinterpret_cast<Row<T>*>(ends) + size_t(blockIdx.x) * 2;
    if (threadIdx.x == 0) to[0] = own.first;
    if (threadIdx.x == L / kWarp - 1) to[1] = own.last;
}

// One thread has P tiles of a system, a block P L / M systems (M: tiles up to a power of two).
template <class T, int tiles, int P, int L>
__global__ void __launch_bounds__(L) solve_ends(const T* __restrict__ ends, T* __restrict__ lasts, int batch) {
    using Here = Shape<T, tiles, P, L>;
    using Method = Reduced<T, ParallelCyclicReduction, Here::G, L, true>;
    const int rank = threadIdx.x % Here::G;
    const size_t system = size_t(blockIdx.x) * (P * L / Here::M) + threadIdx.x / Here::G;
    const Row<T>* const from = reinterpret_cast<const Row<T>*>(ends) + system * tiles * 2;
    T rows[4][P];
#pragma unroll
    for (int i = 0; i < P; ++i) {
        const int tile = rank * P + i;
        Row<T> last = {}, next = {};
        if (system < batch && tile < tiles) last = from[2 * tile + 1];
        if (system < batch && tile < tiles - 1) next = from[2 * tile + 2];
        join(last, next);
        rows[0][i] = last.l, rows[1][i] = T{1}, rows[2][i] = last.r, rows[3][i] = last.d;
    }
    solve_rows<Here, Method>(rows[0], rows[1], rows[2], rows[3]);
#pragma unroll
    for (int i = 0; i < P; ++i)
        if (system < batch && rank * P + i < tiles) lasts[system * tiles + rank * P + i] = rows[3][i];
}

// One block solves one tile.
template <class T, int N, int P, int L, Access load, Access store, int blocks, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    solve_tiles(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, const T* __restrict__ d,
                const T* __restrict__ lasts, T* __restrict__ x, int batch, RowLayout<5, aligned, in_place> layout) {
    using Here = Shape<T, N, P, L, P * L, decltype(layout)>;
    __shared__ Ends<T> places[L / kWarp];
    const unsigned block = gridDim.x - 1 - blockIdx.x;
    const T left = block % Here::tiles > 0 ? lasts[block - 1] : T{}, own = lasts[block];
    T rows[4][P];
    T* const memory = memory_of_warp<Here, load, store>();
    const T* const right = layout.source(d, x);
    const Row<T> first = eliminated_tile<Here, load>({a, b, c, right}, batch, block, memory, rows, layout);
    TileReduction<T, L> tile;
    tile.reduce(first, {rows[0][P - 1], rows[2][P - 1], rows[3][P - 1]}, places);
    substitute(rows[0], rows[2], rows[3], tile.expand(left, own));
    store_rows<Here, store>(x, batch, block, memory, rows[3], layout);
}
