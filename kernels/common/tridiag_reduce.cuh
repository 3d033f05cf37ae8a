// The reduced system with one equation per thread, for methods that eliminate unknowns by their neighbours' equations.
//
// A method has two halves. `reduce` eliminates, `expand` finds the unknowns. Both work on G threads whose rows are
// either a whole system, or (open) a part of one whose ends tie it to unknowns outside: then the row of rank 0 has the
// unknown before it on its left, that of rank G - 1 the one after it on its right, and
//   reduce  leaves the last rank's row by the two unknowns outside, and rank 0's `first`, which came with its right
//           unknown being rank 0's own, with its right unknown being the last rank's
//   expand  is told the unknown outside on the left, and the last rank's own
#pragma once
#include "tridiag_solve.cuh"

// By shuffles each warp reduces its lanes, leaves its two end equations in shared memory, and solves the system of
// all the warps itself: one barrier in all. Otherwise every exchange goes through shared memory.
template <class T, template <int, bool> class Method, int G, int L, bool shuffle, class D = T>
struct Reduced {
    static constexpr int elements = !shuffle ? L : G > kWarp ? 2 * L / kWarp : 0;  // equations in shared memory

    static __device__ __forceinline__ Solution<D> solve(Row<T, D> first, Row<T, D> last) {
        if constexpr (!shuffle)
            return by_shared(first, last);
        else if constexpr (G <= kWarp)
            return by_shuffles(first, last);
        else
            return by_warps(first, last);
    }

    static __device__ __forceinline__ Solution<D> by_shared(Row<T, D> first, Row<T, D> last) {
        __shared__ T places[2][3][L];
        ByShared<T, G, L> threads{places};
        const int rank = threadIdx.x % G;
        const D value = solve_closed<G>(first, last, rank, threads);
        threads.publish(value);
        return {threads.template of<D>(rank + G - 1), value};
    }

    static __device__ __forceinline__ Solution<D> by_shuffles(Row<T, D> first, Row<T, D> last) {
        ByShuffle<T, G, D> lanes;
        const D value = solve_closed<G>(first, last, threadIdx.x % G, lanes);
        return {of_lane_before(value, G), value};
    }

    static __device__ __forceinline__ Solution<D> by_warps(Row<T, D> first, Row<T, D> last) {
        constexpr int warps = G / kWarp;
        __shared__ Row<T, D> firsts[L / kWarp], lasts[L / kWarp];
        using Open = Method<kWarp, true>;
        const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp, mine = warp % warps;
        ByShuffle<T, kWarp, D> lanes;
        Row<T, D> row = last;
        lanes.publish(first);
        Row<T, D> next = lanes.template of<Row<T, D>>(lane + 1);
        if (lane < kWarp - 1) join(row, next);  // the last lane's right unknown is in another warp
        Open::reduce(row, first, lane, lanes);
        if (lane == 0) firsts[warp] = first;
        if (lane == kWarp - 1) lasts[warp] = row;
        __syncthreads();
        ByShuffle<T, warps, D> leaders;
        const int other = lane % warps;
        const D ends = solve_closed<warps>(firsts[warp - mine + other], lasts[warp - mine + other], other, leaders);
        const D left = of_lane(ends, mine + warps - 1, warps);
        const D value = Open::expand(row, left, of_lane(ends, mine, warps), lane, lanes);
        const D up = of_lane_before(value, kWarp);
        return {lane > 0 ? up : left, value};
    }

    // The last unknown of a thread, or of the warp it stands for, from its end equations
    template <int W, class Exchange>
    static __device__ __forceinline__ D solve_closed(Row<T, D> first, Row<T, D> last, int rank, Exchange& exchange) {
        using Closed = Method<W, false>;
        exchange.publish(first);
        Row<T, D> next = exchange.template of<Row<T, D>>(rank + 1);
        join(last, next);
        Closed::reduce(last, first, rank, exchange);
        return Closed::expand(last, D{}, last.d, rank, exchange);
    }
};
