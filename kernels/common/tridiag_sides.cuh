// Right sides of tridiagonal systems, one or several, between memory and the registers of a block's threads.
//
// With K right sides a system, arrays of them have the shape (batch, K N): those of a system lie one after the other.
#pragma once
#include "tridiag_elements.cuh"
#include "tridiag_rows.cuh"

template <class T, int K>
struct SidesOf {
    using type = Several<T, K>;
};
template <class T>
struct SidesOf<T, 1> {
    using type = T;
};
// The K right sides of a row, or its unknowns
template <class T, int K>
using Sides = typename SidesOf<T, K>::type;

// P rows of a system; those with one right side are an array of four
template <class T, int P, int K>
struct RowsOf {
    struct type {
        T lower[P], diagonal[P], upper[P];
        Several<T, K> right[P];
    };
};
template <class T, int P>
struct RowsOf<T, P, 1> {
    using type = T[4][P];
};
template <class T, int P, int K>
using SystemRows = typename RowsOf<T, P, K>::type;

// The matrix and the right sides of a block's systems or its tile; missing rows are those of the identity.
template <class Shape, Access access, int K>
__device__ __forceinline__ void load_several(const typename Shape::T* const (&matrix)[3], const typename Shape::T* sides,
                                             int batch, unsigned block, typename Shape::T* tile,
                                             typename Shape::T (&rows)[3 + K][Shape::P],
                                             const typename Shape::Layout& layout) {
    using T = typename Shape::T;
    constexpr int N = Shape::N, P = Shape::P, E = Shape::E;
    constexpr bool striped = access != Access::direct;
    static_assert(access != Access::async, "rows pass registers");
    const Mine<Shape, striped> mine(batch, block);
    const Mine<Shape, striped, K> side(batch, block);
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

// Coefficients below, on and above the diagonal, and right sides
template <class Shape, Access access, int K>
__device__ __forceinline__ void load_systems(const typename Shape::T* const (&matrix)[3], const typename Shape::T* sides,
                                             int batch, unsigned block, typename Shape::T* tile,
                                             SystemRows<typename Shape::T, Shape::P, K>& rows,
                                             const typename Shape::Layout& layout) {
    constexpr int P = Shape::P;
    if constexpr (K == 1) {
        load_rows<Shape, access>({matrix[0], matrix[1], matrix[2], sides}, batch, block, tile, rows, layout);
    } else {
        typename Shape::T all[3 + K][P];
        load_several<Shape, access, K>(matrix, sides, batch, block, tile, all, layout);
#pragma unroll
        for (int i = 0; i < P; ++i) {
            rows.lower[i] = all[0][i], rows.diagonal[i] = all[1][i], rows.upper[i] = all[2][i];
#pragma unroll
            for (int k = 0; k < K; ++k) rows.right[i].at[k] = all[3 + k][i];
        }
    }
}

// Unknowns of a block's systems or its tile
template <class Shape, Access access, int K>
__device__ __forceinline__ void store_unknowns(typename Shape::T* array, int batch, unsigned block,
                                               typename Shape::T* tile, Sides<typename Shape::T, K> (&unknowns)[Shape::P],
                                               const typename Shape::Layout& layout) {
    if constexpr (K == 1) {
        store_rows<Shape, access>(array, batch, block, tile, unknowns, layout);
    } else {
#pragma unroll
        for (int k = 0; k < K; ++k) {
            typename Shape::T values[Shape::P];
#pragma unroll
            for (int i = 0; i < Shape::P; ++i) values[i] = unknowns[i].at[k];
            store_rows<Shape, access, K>(array + k * Shape::N, batch, block, tile, values, layout);
        }
    }
}
