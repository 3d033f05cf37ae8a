// A tile of a long system: its rows in the registers of a block's L threads, reduced to two equations and expanded again.
//
// The first equation has the tile's first unknown by the unknown before the tile and by the tile's last one; the last
// equation has the last unknown by the one before the tile and by the first of the next tile (H. H. Wang, "A Parallel
// Method for Tridiagonal Equations", ACM TOMS 7(2), 1981). These are sums of rows of the system, of which dominant
// ones stay dominant: eliminating in tiles is as stable as eliminating from the first row to the last.
//
// Threads eliminate their P rows, lanes of a warp those of its threads, and then the warps those of the tile, by
// parallel cyclic reduction. Each warp does the last level for itself, so one barrier is enough.
#pragma once
#include "tridiag_pcr.cuh"

// The equations of a tile
template <class T>
struct Ends {
    Row<T> first, last;
};

template <class T, int L>
class TileReduction {
public:
    static constexpr int warps = L / kWarp;
    static_assert(warps >= 2, "a tile has several warps");

    // From the equations of the threads; whole in the first warp, whose lane 0 has the tile's first one and whose lane
    // `warps` - 1 the last one. `places` of shared memory are for the equations of the warps.
    __device__ __forceinline__ Ends<T> reduce(Row<T> first, Row<T> last, Ends<T>* places) {
        row = joined(first, last, lane, lanes);
        ParallelCyclicReduction<kWarp, true>::reduce(row, first, lane, lanes);
        if (lane == 0) places[warp].first = first;
        if (lane == kWarp - 1) places[warp].last = row;
        __syncthreads();
        const Ends<T> of_warp = places[other];
        first = of_warp.first;
        warp_row = joined(first, of_warp.last, other, leaders);
        ParallelCyclicReduction<warps, true>::reduce(warp_row, first, other, leaders);
        return {first, warp_row};
    }

    // The tile's equations in every lane, from those that `reduce` gave
    static __device__ __forceinline__ Ends<T> told_to_all(Ends<T> ends) {
        ByShuffle<T, kWarp> exchange;
        exchange.publish(ends.first);
        const Row<T> first = exchange.template of<Row<T>>(0);
        exchange.publish(ends.last);
        return {first, exchange.template of<Row<T>>(warps - 1)};
    }

    // What each thread wants to know of the unknowns, by the one before the tile and the tile's last one
    __device__ __forceinline__ Solution<T> expand(T left, T last) {
        const T ends = ParallelCyclicReduction<warps, true>::expand(warp_row, left, last, other, leaders);
        const T found = of_lane(ends, warp + warps - 1, warps);
        const T before = warp > 0 ? found : left;
        const T own = of_lane(ends, warp, warps);
        const T value = ParallelCyclicReduction<kWarp, true>::expand(row, before, own, lane, lanes);
        const T up = of_lane_before(value, kWarp);
        return {lane > 0 ? up : before, value};
    }

private:
    // `last` with its right unknown being the next one's last. The last rank's is outside and stays.
    template <int W>
    static __device__ __forceinline__ Row<T> joined(Row<T> first, Row<T> last, int rank, ByShuffle<T, W>& exchange) {
        exchange.publish(first);
        Row<T> next = exchange.template of<Row<T>>(rank + 1);
        if (rank < W - 1) join(last, next);
        return last;
    }

    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp % warps;
    const int other = lane % warps;  // the warp that a lane stands for on the second level
    ByShuffle<T, kWarp> lanes;
    ByShuffle<T, warps> leaders;
    Row<T> row, warp_row;  // a thread's last unknown, and a warp's, by those at the ends
};

// The rows of a tile, scaled and without corners, each thread's eliminated
template <class Shape, Access loading>
__device__ __forceinline__ Row<typename Shape::T> eliminated_tile(
    const typename Shape::T* const (&arrays)[4], int batch, unsigned block, typename Shape::T* memory,
    typename Shape::T (&rows)[4][Shape::P], const typename Shape::Layout& layout) {
    using T = typename Shape::T;
    constexpr int N = Shape::N, P = Shape::P, M = Shape::M, tiles = Shape::tiles;
    load_rows<Shape, loading>(arrays, batch, block, memory, rows, layout);
    const int tile = block % tiles;
    const int rank = threadIdx.x % Shape::L;
    if (tile == 0 && rank == 0) rows[0][0] = T{};
    if (tile == tiles - 1 && rank == (N - 1) % M / P) rows[2][(N - 1) % P] = T{};
    scale(rows[0], rows[1], rows[2], rows[3]);
    return eliminate(rows[0], rows[1], rows[2], rows[3]);
}
