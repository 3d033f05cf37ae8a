// Tridiagonal systems with several right sides, by parallel cyclic reduction: the matrix is read and eliminated once.
//
// a, b, c have the shape (batch, N), d and x (batch, K N): the K right sides of a system lie one after the other.
#include "tridiag_pcr.cuh"

// The matrix and the right sides of a block's systems; missing rows are those of the identity.
template <class Shape, Access access, int K>
__device__ __forceinline__ void load_several(const typename Shape::T* const (&matrix)[3], const typename Shape::T* sides,
                                             int batch, typename Shape::T* tile,
                                             typename Shape::T (&rows)[3 + K][Shape::P],
                                             const typename Shape::Layout& layout) {
    using T = typename Shape::T;
    constexpr int N = Shape::N, P = Shape::P, E = Shape::E;
    constexpr bool striped = access != Access::direct;
    const Mine<Shape, striped> mine(batch, blockIdx.x);
    const Mine<Shape, striped, K> side(batch, blockIdx.x);
    const auto of_sides = layout.pitch_of(3, K * N);
#pragma unroll
    for (int i = 0; i < P; i += E) {
        const bool exist = mine.exist(i);
#pragma unroll
        for (int k = 0; k < 3 + K; ++k) {
            T chunk[E];
#pragma unroll
            for (int e = 0; e < E; ++e) chunk[e] = k == 1 ? T{1} : T{};
            const auto pitch = layout.pitch_of(k % 3, N);
            if (exist && k < 3) get<E>(chunk, matrix[k % 3] + mine.first(pitch) + mine.element(i, pitch));
            if (exist && k >= 3) get<E>(chunk, sides + side.first(of_sides) + (k - 3) * N + side.element(i, of_sides));
#pragma unroll
            for (int e = 0; e < E; ++e) rows[k][i + e] = chunk[e];
        }
    }
    if constexpr (striped) {
#pragma unroll
        for (int k = 0; k < 3 + K; ++k) to_owners<Shape>(tile, rows[k]);
    }
}

// One thread solves P rows of a system, a block of L threads P L / M systems (M: N up to a power of two).
//   blocks  that a multiprocessor is to hold at least, which bounds the registers
// The launch gives shared memory for P L numbers if rows are transposed. Arrays are aligned to 16 bytes.
template <class T, int N, int K, int P, int L, Access load, Access store, int blocks, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    tridiag_several(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, const T* __restrict__ d,
                    T* __restrict__ x, int batch, RowLayout<5, aligned, in_place> layout) {
    using Here = Shape<T, N, P, L, next_pow2(N), decltype(layout)>;
    using D = Several<T, K>;
    using Method = Reduced<T, ParallelCyclicReduction, Here::G, L, true, D>;
    static_assert(load != Access::async && store != Access::async, "rows pass registers");
    extern __shared__ float4 shared[];
    T* const tile = reinterpret_cast<T*>(shared) + threadIdx.x / kWarp * tile_elements<Here>(load, store);
    T rows[3 + K][P];
    load_several<Here, load, K>({a, b, c}, layout.source(d, x), batch, tile, rows, layout);
    const int rank = threadIdx.x % Here::G;
    if (rank == 0) rows[0][0] = T{};
    if (rank == (N - 1) / P) rows[2][(N - 1) % P] = T{};
    D sides[P];
#pragma unroll
    for (int i = 0; i < P; ++i)
#pragma unroll
        for (int k = 0; k < K; ++k) sides[i].at[k] = rows[3 + k][i];
    scale(rows[0], rows[1], rows[2], sides);
    solve_rows<Here, Method>(rows[0], rows[1], rows[2], sides);
#pragma unroll
    for (int k = 0; k < K; ++k) {
        T values[P];
#pragma unroll
        for (int i = 0; i < P; ++i) values[i] = sides[i].at[k];
        store_rows<Here, store, K>(x + k * N, batch, blockIdx.x, tile, values, layout);
    }
}
