// A tile of a long system: its rows in the registers of a block's L threads, reduced to two equations and expanded again.
//
// The first equation has the tile's first unknown by the unknown before the tile and by the tile's last one; the last
// equation has the last unknown by the one before the tile and by the first of the next tile (H. H. Wang, "A Parallel
// Method for Tridiagonal Equations", ACM TOMS 7(2), 1981). These are sums of rows of the system, of which dominant
// ones stay dominant: eliminating in tiles is as stable as eliminating from the first row to the last.
//
// Threads eliminate their P rows, lanes of a warp those of its threads, and then the warps those of the tile, by
// parallel cyclic reduction. Each warp does the last level for itself, so one barrier is enough.
//
// A periodic system is a circle of tiles: the first one follows the last. Rows that fill up the last tile may not stand
// in between, so that tile ends at the last row that exists, within a thread and with threads lacking behind it.
#pragma once
#include "tridiag_pcr.cuh"
#include "tridiag_sides.cuh"

// Where a thread's rows are in a system of N rows in tiles of M
template <int N, int M, int P, bool periodic_>
struct Place {
    static constexpr bool periodic = periodic_;
    static constexpr int tiles = (N + M - 1) / M;
    static constexpr bool cut = periodic && N % M != 0;  // the last tile ends before its last place
    static constexpr int row = (N - 1) % P;              // the last one of a system in its thread

    __device__ __forceinline__ explicit Place(unsigned block)
        : tile(block % tiles),
          lacking(cut && tile == tiles - 1 ? M / P - 1 - (N - 1) % M / P : 0),
          rank(threadIdx.x % (M / P)) {}
    // Whether row i of the thread is the tile's last one, or beyond it
    __device__ __forceinline__ bool is_end(int i) const {
        return cut && row < P - 1 && tile == tiles - 1 && rank == (N - 1) % M / P && i >= row;
    }

    const int tile;
    const int lacking;  // threads behind that of the tile's last row
    const int rank;     // of this thread in its tile
};

// What a thread's rows are reduced to; those beyond the end of the tile count for nothing.
template <class Place, class T, class D, int P>
__device__ __forceinline__ Ends<T, D> eliminated(const Place& place, T (&a)[P], T (&b)[P], T (&c)[P], D (&d)[P]) {
    constexpr int row = Place::row;
    if constexpr (!Place::cut || row == P - 1) {
        const Row<T, D> first = eliminate(a, b, c, d);
        return {first, {a[P - 1], c[P - 1], d[P - 1]}};
    } else {
        eliminate_lower(a, b, c, d);
        Row<T, D> first = {T{}, T{-1}, D{}}, last = {a[P - 1], c[P - 1], d[P - 1]};  // the last unknown is itself
        if (place.is_end(row)) last = {a[row], c[row], d[row]};
#pragma unroll
        for (int i = P - 2; i >= 0; --i)
            if (!place.is_end(i)) first = {a[i] - c[i] * first.l, -c[i] * first.r, d[i] - c[i] * first.d};
        return {first, last};
    }
}

// Unknowns of a thread's eliminated rows in place of the right sides
template <class Place, class T, class D, int P>
__device__ __forceinline__ void substituted(const Place& place, const T (&a)[P], const T (&c)[P], D (&d)[P],
                                            Solution<D> ends) {
    if constexpr (!Place::cut || Place::row == P - 1) {
        substitute(a, c, d, ends);
    } else {
        d[P - 1] = ends.last;
#pragma unroll
        for (int i = P - 2; i >= 0; --i) {
            const D value = d[i] - (a[i] * ends.left + c[i] * d[i + 1]);
            d[i] = place.is_end(i) ? ends.last : value;
        }
    }
}

// `last` with its right unknown being the next one's last. The last rank's is outside and stays.
//   lacking  last ranks of W that count for nothing
template <int W, class T, class D>
__device__ __forceinline__ Row<T, D> joined(Row<T, D> first, Row<T, D> last, int rank, ByShuffle<T, W, D>& exchange,
                                            int lacking = 0) {
    exchange.publish(first);
    Row<T, D> next = exchange.template of<Row<T, D>>(rank + 1);
    if (rank + lacking < W - 1) join(last, next);
    return last;
}

// Lane 0's first equation and lane `end`'s last one, in every lane
template <class T, class D>
__device__ __forceinline__ Ends<T, D> told_to_all(Ends<T, D> ends, int end) {
    ByShuffle<T, kWarp, D> exchange;
    exchange.publish(ends.first);
    const Row<T, D> first = exchange.template of<Row<T, D>>(0);
    exchange.publish(ends.last);
    return {first, exchange.template of<Row<T, D>>(end)};
}

// The equations of a tile's threads, reduced to those of the tile and expanded to the threads' unknowns
template <class T, int L, class D, class Place>
class TileReduction {
public:
    static constexpr int warps = L / kWarp;
    static_assert(warps >= 2, "a tile has several warps");

    __device__ __forceinline__ explicit TileReduction(const Place& place)
        : lacking_warps(place.lacking / kWarp),
          lacking_lanes(warp + lacking_warps == warps - 1 ? place.lacking % kWarp : 0) {}

    // From the equations of the threads; whole in the first warp, whose lane 0 has the tile's first one and whose lane
    // `last_warp()` the last one. `places` of shared memory are for the equations of the warps.
    __device__ __forceinline__ Ends<T, D> reduce(Row<T, D> first, Row<T, D> last, Ends<T, D>* places) {
        row = joined(first, last, lane, lanes, lacking_lanes);
        const Row<T, D> of_thread = first;
        ParallelCyclicReduction<kWarp, true>::reduce(row, first, lane, lanes, lacking_lanes);
        if (Place::cut && lacking_lanes == kWarp - 1) first = of_thread;
        if (lane == 0) places[warp].first = first;
        if (lane + lacking_lanes == kWarp - 1) places[warp].last = row;
        __syncthreads();
        const Ends<T, D> of_warp = places[other];
        first = of_warp.first;
        warp_row = joined(first, of_warp.last, other, leaders, lacking_warps);
        ParallelCyclicReduction<warps, true>::reduce(warp_row, first, other, leaders, lacking_warps);
        if (Place::cut && lacking_warps == warps - 1) first = of_warp.first;
        return {first, warp_row};
    }

    // What each thread wants to know of the unknowns, by the one before the tile and the tile's last one
    __device__ __forceinline__ Solution<D> expand(D left, D last) {
        const D ends = ParallelCyclicReduction<warps, true>::expand(warp_row, left, last, other, leaders, lacking_warps);
        const D found = of_lane(ends, warp + warps - 1, warps);
        const D before = warp > 0 ? found : left;
        const D own = of_lane(ends, warp, warps);
        const D value = ParallelCyclicReduction<kWarp, true>::expand(row, before, own, lane, lanes, lacking_lanes);
        const D up = of_lane_before(value, kWarp);
        return {lane > 0 ? up : before, value};
    }

    // That of the tile's last row
    __device__ __forceinline__ int last_warp() const { return warps - 1 - lacking_warps; }

private:
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp % warps;
    const int other = lane % warps;          // the warp that a lane stands for on the second level
    const int lacking_warps, lacking_lanes;  // behind the tile's last row, the latter of this warp
    ByShuffle<T, kWarp, D> lanes;
    ByShuffle<T, warps, D> leaders;
    Row<T, D> row, warp_row;  // a thread's last unknown, and a warp's, by those at the ends
};

// The last unknown of a circle, by the equations of the whole: the unknown before it is the last one, the one behind it
// the first.
template <class T, class D>
__device__ __forceinline__ D closed(Ends<T, D> ends) {
    const Row<T, D> first = ends.first, last = ends.last;
    return (last.d - last.r * first.d) * reciprocal(T{1} + last.l - last.r * (first.l + first.r));
}

// The rows of a tile, scaled and without the corners of an open system, and what each thread's are reduced to
template <class Place, class Shape, Access loading, int K>
__device__ __forceinline__ Ends<typename Shape::T, Sides<typename Shape::T, K>> eliminated_tile(
    const typename Shape::T* const (&matrix)[3], const typename Shape::T* sides, int batch, unsigned block,
    typename Shape::T* memory, SystemRows<typename Shape::T, Shape::P, K>& rows, const typename Shape::Layout& layout) {
    using T = typename Shape::T;
    constexpr int N = Shape::N, P = Shape::P, M = Shape::M, tiles = Shape::tiles;
    load_systems<Shape, loading, K>(matrix, sides, batch, block, memory, rows, layout);
    const Place place(block);
    auto& [lower, diagonal, upper, right] = rows;
    if constexpr (!Place::periodic) {
        if (place.tile == 0 && place.rank == 0) lower[0] = T{};
        if (place.tile == tiles - 1 && place.rank == (N - 1) % M / P) upper[(N - 1) % P] = T{};
    }
    scale(lower, diagonal, upper, right);
    return eliminated(place, lower, diagonal, upper, right);
}
