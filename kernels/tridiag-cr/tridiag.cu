// Tridiagonal systems by cyclic reduction.
// "Performance Tuning for GPU-Embedded Systems", sections III and V-A and Fig. 2; R. W. Hockney, "A fast direct
// solution of Poisson's equation using Fourier analysis", J. ACM 12(1), 1965.
//
// In each step every other row that is left of the reduced system eliminates its two neighbours by their equations,
// until one row is left. On the way back each neighbour finds its unknown by those of the rows that eliminated it.
// That takes half of the arithmetic of parallel cyclic reduction in twice the steps.
#include "tridiag_reduce.cuh"

template <int G, bool open>
struct CyclicReduction {
    template <class T, class Exchange>
    static __device__ __forceinline__ void reduce(Row<T>& row, Row<T>& first, int rank, Exchange& exchange) {
#pragma unroll
        for (int s = 1; s < G; s *= 2) {
            const bool stays = rank % (2 * s) == 2 * s - 1;
            const bool leads = open && rank == 0;  // takes the row that its `first` has on the right
            exchange.publish(row, rank % s == s - 1);
            if (!Exchange::together && !stays) continue;
            const Row<T> before = exchange.template of<Row<T>>(leads ? s - 1 : rank + G - s);
            Row<T> after = exchange.template of<Row<T>>(rank + s);
            if (open && rank == G - 1) after = {T{}, T{-1}, T{}};  // an unknown outside is itself
            if (leads) first = in_left(first, before);
            if (stays) row = reduced(row, before, after);
        }
    }

    template <class T, class Exchange>
    static __device__ __forceinline__ T expand(Row<T> row, T left, T last, int rank, Exchange& exchange) {
        T value = rank == G - 1 ? last : row.d;
#pragma unroll
        for (int s = G / 2; s > 0; s /= 2) {
            const bool returns = rank % (2 * s) == s - 1;
            exchange.publish(value, rank % (2 * s) == 2 * s - 1);
            if (!Exchange::together && !returns) continue;
            const T found = exchange.template of<T>(rank + G - s);
            const T before = open && rank < s ? left : found;
            const T after = exchange.template of<T>(rank + s);
            if (returns) value = row.d - row.l * before - row.r * after;
        }
        return value;
    }
};

// One thread solves P rows of a system, a block of L threads P L / M systems (M: N up to a power of two).
//   shuffle  exchange within warps by shuffles
//   S        elements of the block in shared memory at a time: P L where rows pass it on their way between
//            memory and registers, else the rows of the reduced system that threads exchange through it
//   blocks   that a multiprocessor is to hold at least, which bounds the registers
// Arrays are aligned to 16 bytes.
template <class T, int N, int P, int L, int r, int S, bool shuffle, Access load, Access store, int blocks,
          int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    tridiag_cr(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
               const T* __restrict__ d, T* __restrict__ x, int batch, RowLayout<5, aligned, in_place> layout) {
    using Here = Shape<T, N, P, L, next_pow2(N), decltype(layout)>;
    using Method = Reduced<T, CyclicReduction, Here::G, L, shuffle>;
    static_assert(r == 2, "every step halves the rows");
    static_assert(S == (tile_elements<Here>(load, store) ? P * L : Method::elements), "S is one of the amounts above");
    solve_systems<Here, load, store, Method>(a, b, c, d, x, batch, layout);
}
