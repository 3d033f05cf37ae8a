// Tridiagonal systems with several right sides, by parallel cyclic reduction: the matrix is read and eliminated once.
//
// a, b, c have the shape (batch, N), d and x (batch, K N): the K right sides of a system lie one after the other.
#include "tridiag_pcr.cuh"
#include "tridiag_sides.cuh"

// One thread solves P rows of a system, a block of L threads P L / M systems (M: N up to a power of two).
//   blocks  that a multiprocessor is to hold at least, which bounds the registers
// The launch gives shared memory for P L numbers if rows are transposed. Arrays are aligned to 16 bytes.
template <class T, int N, int K, int P, int L, Access load, Access store, int blocks, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    tridiag_several(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, const T* __restrict__ d,
                    T* __restrict__ x, int batch, RowLayout<5, aligned, in_place> layout) {
    using Here = Shape<T, N, P, L, next_pow2(N), decltype(layout)>;
    using D = Sides<T, K>;
    using Method = Reduced<T, ParallelCyclicReduction, Here::G, L, true, D>;
    static_assert(K > 1, "several right sides");
    extern __shared__ float4 shared[];
    T* const tile = reinterpret_cast<T*>(shared) + threadIdx.x / kWarp * tile_elements<Here>(load, store);
    SystemRows<T, P, K> rows;
    load_systems<Here, load, K>({a, b, c}, layout.source(d, x), batch, blockIdx.x, tile, rows, layout);
    auto& [lower, diagonal, upper, right] = rows;
    const int rank = threadIdx.x % Here::G;
    if (rank == 0) lower[0] = T{};
    if (rank == (N - 1) / P) upper[(N - 1) % P] = T{};
    scale(lower, diagonal, upper, right);
    solve_rows<Here, Method>(lower, diagonal, upper, right);
    store_unknowns<Here, store, K>(x, batch, blockIdx.x, tile, right, layout);
}
