// Tridiagonal systems by parallel cyclic reduction.
// "Performance Tuning for GPU-Embedded Systems", sections III and V-A and Fig. 2; R. W. Hockney and C. R. Jesshope,
// "Parallel Computers", 1981.
//
// In every step each row of the reduced system eliminates its neighbours at distance s = 1, 2, 4, ... by their
// equations, which leaves it with those at distance 2 s: log2 G steps, in which no thread is ever idle.
#include "tridiag_pcr.cuh"

// One thread solves P rows of a system, a block of L threads P L / M systems (M: N up to a power of two).
//   shuffle  exchange within warps by shuffles
//   S        elements of the block in shared memory at a time: P L where rows pass it on their way between
//            memory and registers, else the rows of the reduced system that threads exchange through it
//   blocks   that a multiprocessor is to hold at least, which bounds the registers
// Arrays are aligned to 16 bytes.
template <class T, int N, int P, int L, int r, int S, bool shuffle, Access load, Access store, int blocks,
          int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    tridiag_pcr(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
                const T* __restrict__ d, T* __restrict__ x, int batch, RowLayout<5, aligned, in_place> layout) {
    using Here = Shape<T, N, P, L, next_pow2(N), decltype(layout)>;
    using Method = Reduced<T, ParallelCyclicReduction, Here::G, L, shuffle>;
    static_assert(r == 2, "every step doubles the distance");
    static_assert(S == (tile_elements<Here>(load, store) ? P * L : Method::elements), "S is one of the amounts above");
    solve_systems<Here, load, store, Method>(a, b, c, d, x, batch, layout);
}
