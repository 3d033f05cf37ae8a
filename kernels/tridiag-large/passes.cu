// Long tridiagonal systems in three launches: tiles are reduced to two equations each, the system of these is solved,
// and tiles are read again and solved by the unknowns at their ends. That moves 36 bytes a row of float32, of which
// the second read finds in the second-level cache what the first one left there: tiles are taken in reverse.
//
// Arrays have the shape (batch, N), those of K right sides (batch, K N); in place, x is d's memory. `ends` holds the
// equations of all tiles, `lasts` the last unknown of each.
#include "tile.cuh"

template <class Shape, Access loading, Access storing>
__device__ __forceinline__ typename Shape::T* memory_of_warp() {
    extern __shared__ float4 shared[];
    return reinterpret_cast<typename Shape::T*>(shared) +
           threadIdx.x / kWarp * tile_elements<Shape>(loading, storing);
}

// One block reduces one tile of P L rows.
template <class T, int N, int P, int L, Access load, int blocks, int aligned, int K = 1, bool periodic = false>
__global__ void __launch_bounds__(L, blocks)
    reduce_tiles(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, const T* __restrict__ d,
                 T* __restrict__ ends, int batch, RowLayout<5, aligned, false> layout) {
    using Here = Shape<T, N, P, L, P * L, decltype(layout)>;
    using D = Sides<T, K>;
    using Spot = Place<N, P * L, P, periodic>;
    __shared__ Ends<T, D> places[L / kWarp];
    SystemRows<T, P, K> rows;
    T* const memory = memory_of_warp<Here, load, Access::direct>();
    const Ends<T, D> mine =
        eliminated_tile<Spot, Here, load, K>({a, b, c}, d, batch, blockIdx.x, memory, rows, layout);
    const Spot place(blockIdx.x);
    TileReduction<T, L, D, Spot> tile(place);
    const Ends<T, D> own = tile.reduce(mine.first, mine.last, places);
    Row<T, D>* const to = reinterpret_cast<Row<T, D>*>(ends) + size_t(blockIdx.x) * 2;
    if (threadIdx.x == 0) to[0] = own.first;
    if (threadIdx.x == tile.last_warp()) to[1] = own.last;
}

// An equation with one of its right sides
template <class T>
__device__ __forceinline__ Row<T> of_side(const Row<T>& row, int) {
    return row;
}
template <class T, int K>
__device__ __forceinline__ Row<T> of_side(const Row<T, Several<T, K>>& row, int side) {
    return {row.l, row.r, row.d.at[side]};
}

// One thread has P tiles of a system and one of its right sides, a block P L / M of these (M: tiles up to a power of two).
template <class T, int tiles, int P, int L, int K = 1>
__global__ void __launch_bounds__(L) solve_ends(const T* __restrict__ ends, T* __restrict__ lasts, int batch) {
    using Here = Shape<T, tiles, P, L>;
    using Method = Reduced<T, ParallelCyclicReduction, Here::G, L, true>;
    const int rank = threadIdx.x % Here::G;
    const size_t solved = size_t(blockIdx.x) * (P * L / Here::M) + threadIdx.x / Here::G;
    const size_t system = solved / K;
    const int side = solved % K;
    const Row<T, Sides<T, K>>* const from = reinterpret_cast<const Row<T, Sides<T, K>>*>(ends) + system * tiles * 2;
    T rows[4][P];
#pragma unroll
    for (int i = 0; i < P; ++i) {
        const int tile = rank * P + i;
        Row<T> last = {}, next = {};
        if (system < batch && tile < tiles) last = of_side(from[2 * tile + 1], side);
        if (system < batch && tile < tiles - 1) next = of_side(from[2 * tile + 2], side);
        join(last, next);
        rows[0][i] = last.l, rows[1][i] = T{1}, rows[2][i] = last.r, rows[3][i] = last.d;
    }
    solve_rows<Here, Method>(rows[0], rows[1], rows[2], rows[3]);
#pragma unroll
    for (int i = 0; i < P; ++i)
        if (system < batch && rank * P + i < tiles) lasts[(system * tiles + rank * P + i) * K + side] = rows[3][i];
}

// Of a circle of tiles: one thread has P of them, a block a system, which is reduced as a tile is.
template <class T, int tiles, int P, int L>
__global__ void __launch_bounds__(L) solve_circle(const T* __restrict__ ends, T* __restrict__ lasts) {
    using Spot = Place<tiles, P * L, P, true>;
    static_assert(Spot::tiles == 1, "a block holds a system");
    __shared__ Ends<T> places[L / kWarp];
    const Spot place(0);
    const Row<T>* const from = reinterpret_cast<const Row<T>*>(ends) + size_t(blockIdx.x) * tiles * 2;
    T rows[4][P];
#pragma unroll
    for (int i = 0; i < P; ++i) {
        const int tile = place.rank * P + i;
        Row<T> last = {}, next = {};
        if (tile < tiles) last = from[2 * tile + 1], next = from[tile < tiles - 1 ? 2 * tile + 2 : 0];
        join(last, next);
        rows[0][i] = last.l, rows[1][i] = T{1}, rows[2][i] = last.r, rows[3][i] = last.d;
    }
    const Ends<T> mine = eliminated(place, rows[0], rows[1], rows[2], rows[3]);
    TileReduction<T, L, T, Spot> circle(place);
    const T last = closed(told_to_all(circle.reduce(mine.first, mine.last, places), circle.last_warp()));
    substituted(place, rows[0], rows[2], rows[3], circle.expand(last, last));
#pragma unroll
    for (int i = 0; i < P; ++i)
        if (place.rank * P + i < tiles) lasts[size_t(blockIdx.x) * tiles + place.rank * P + i] = rows[3][i];
}

// One block solves one tile.
template <class T, int N, int P, int L, Access load, Access store, int blocks, int aligned, bool in_place, int K = 1,
          bool periodic = false>
__global__ void __launch_bounds__(L, blocks)
    solve_tiles(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, const T* __restrict__ d,
                const T* __restrict__ lasts, T* __restrict__ x, int batch, RowLayout<5, aligned, in_place> layout) {
    using Here = Shape<T, N, P, L, P * L, decltype(layout)>;
    using D = Sides<T, K>;
    using Spot = Place<N, P * L, P, periodic>;
    __shared__ Ends<T, D> places[L / kWarp];
    const unsigned block = gridDim.x - 1 - blockIdx.x;
    const D* const from = reinterpret_cast<const D*>(lasts);
    const D left = block % Here::tiles > 0 ? from[block - 1] : periodic ? from[block + Here::tiles - 1] : D{}, own = from[block];
    SystemRows<T, P, K> rows;
    T* const memory = memory_of_warp<Here, load, store>();
    const Ends<T, D> mine = eliminated_tile<Spot, Here, load, K>({a, b, c}, layout.source(d, x), batch, block, memory,
                                                                 rows, layout);
    const Spot place(block);
    TileReduction<T, L, D, Spot> tile(place);
    tile.reduce(mine.first, mine.last, places);
    auto& [lower, diagonal, upper, right] = rows;
    substituted(place, lower, upper, right, tile.expand(left, own));
    store_unknowns<Here, store, K>(x, batch, block, memory, right, layout);
}
