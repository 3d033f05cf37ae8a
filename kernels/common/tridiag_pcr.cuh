// Parallel cyclic reduction: in every step each row of the reduced system eliminates its neighbours at distance
// s = 1, 2, 4, ... by their equations, which leaves it with those at distance 2 s. R. W. Hockney and C. R. Jesshope,
// "Parallel Computers", 1981.
#pragma once
#include "tridiag_reduce.cuh"

template <int G, bool open>
struct ParallelCyclicReduction {
    //   lacking  last ranks of an open part that count for nothing. If all but one do, `first` is to stay as it came.
    template <class T, class D, class Exchange>
    static __device__ __forceinline__ void reduce(Row<T, D>& row, Row<T, D>& first, int rank, Exchange& exchange,
                                                  int lacking = 0) {
#pragma unroll
        for (int s = 1; s < G; s *= 2) {
            exchange.publish(row);
            Row<T, D> before = exchange.template of<Row<T, D>>(rank + G - s);
            Row<T, D> after = exchange.template of<Row<T, D>>(rank + s);
            // An unknown that is not eliminated here is itself. The last rank's is one of them for all but itself.
            if (open && rank < s) before = {T{-1}, T{}, D{}};
            if (open && rank + lacking + s >= G - 1) after = {T{}, T{-1}, D{}};
            row = reduced(row, before, after);
        }
        if (open) first = in_left(first, row);
    }

    template <class T, class D, class Exchange>
    static __device__ __forceinline__ D expand(Row<T, D> row, D left, D last, int rank, Exchange&, int lacking = 0) {
        return !open ? row.d : rank + lacking == G - 1 ? last : row.d - row.l * left - row.r * last;
    }
};
