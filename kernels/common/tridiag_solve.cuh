// The frame of the tridiagonal kernels: everything but the reduced system.
//
// Each thread eliminates its P rows in registers until two equations are left: its first unknown by the unknown
// before it and its own last one, and its last unknown by the one before its first and the next thread's first.
// A method solves the system that these equations of the G = M / P threads are. Then every thread knows its last
// unknown and the one before its first, and finds the others by itself.
//
// There is no pivoting, so systems are meant to be diagonally dominant: with |b| >= |a| + |c| + 0.05 the error is below
// 1e-6 of the system's largest unknown. Without dominance it is what elimination without pivoting gives, the condition
// number times rounding for (-1, 2, -1), and unbounded in general. A zero pivot, which a singular matrix has and others
// may, makes unknowns of that system infinite or NaN, and of no other.
//
// Each row is first multiplied by a power of two that brings its largest coefficient to about 1. That is exact, and
// keeps products of coefficients in range whatever the magnitude of the row. From there on everything is of the
// magnitude of 1 or of the unknowns: those may be as large as 2^124 and as small as denormal numbers.
#pragma once
#include "tridiag_equations.cuh"
#include "tridiag_rows.cuh"

// Multiplies each row by a power of two.
template <class T, int P>
__device__ __forceinline__ void scale(T (&rows)[4][P]) {
    auto& [a, b, c, d] = rows;
#pragma unroll
    for (int i = 0; i < P; ++i) {
        const auto k = scale_of(a[i], b[i], c[i]);
        a[i] *= k, b[i] *= k, c[i] *= k, d[i] *= k;
    }
}

// Leaves row i as x_i = right_i - lower_i x_left - upper_i x_(i+1), where x_left is the unknown before the thread's
// first.
template <class T, int P>
__device__ __forceinline__ void eliminate_lower(T (&rows)[4][P]) {
    auto& [a, b, c, d] = rows;
    const T k = reciprocal(b[0]);
    a[0] *= k, c[0] *= k, d[0] *= k;
#pragma unroll
    for (int i = 1; i < P; ++i) {
        const T k = reciprocal(b[i] - a[i] * c[i - 1]);
        d[i] = (d[i] - a[i] * d[i - 1]) * k;
        a[i] *= -a[i - 1] * k;
        c[i] *= k;
    }
}

// The same; returns the first unknown by x_left and the thread's last unknown.
template <class T, int P>
__device__ __forceinline__ Row<T> eliminate(T (&rows)[4][P]) {
    auto& [a, b, c, d] = rows;
    eliminate_lower(rows);
    Row<T> first = {a[P - 2], c[P - 2], d[P - 2]};
#pragma unroll
    for (int i = P - 3; i >= 0; --i) first = {a[i] - c[i] * first.l, -c[i] * first.r, d[i] - c[i] * first.d};
    return first;
}

// The unknown before the thread's first, which is any number for the first thread of a system, and its last
template <class T>
struct Solution {
    T left, last;
};

// Shared memory of a warp that its rows pass through
template <class Shape>
__device__ constexpr int tile_elements(Access load, Access store) {
    return Shape::rows * (load == Access::async ? 4 : load == Access::direct && store == Access::direct ? 0 : 1);
}

// Unknowns of scaled rows by those of the thread's ends, in place of the right sides
template <class T, int P>
__device__ __forceinline__ void substitute(T (&rows)[4][P], Solution<T> ends) {
    auto& [lower, diagonal, upper, right] = rows;
    right[P - 1] = ends.last;
#pragma unroll
    for (int i = P - 2; i >= 0; --i) right[i] -= lower[i] * ends.left + upper[i] * right[i + 1];
}

// The systems of a block, whose rows are scaled and whose corners are 0; unknowns take the place of the right sides.
//   Method  solves the reduced system: `solve(first, last)` of the thread's equations
template <class Shape, class Method>
__device__ __forceinline__ void solve_rows(typename Shape::T (&rows)[4][Shape::P]) {
    using T = typename Shape::T;
    constexpr int P = Shape::P;
    const Row<T> first = eliminate(rows);
    const Row<T> last = {rows[0][P - 1], rows[2][P - 1], rows[3][P - 1]};
    Solution<T> ends = {T{}, last.d};
    if constexpr (Shape::G > 1) ends = Method::solve(first, last);
    substitute(rows, ends);
}

// Solves `batch` systems a_i x_(i-1) + b_i x_i + c_i x_(i+1) = d_i of N rows; a_0 and c_(N-1) count as 0.
// The launch gives shared memory for 4 P L numbers if rows are loaded async, else for P L if they are transposed.
template <class Shape, Access loading, Access storing, class Method>
__device__ __forceinline__ void solve_systems(const typename Shape::T* a, const typename Shape::T* b,
                                              const typename Shape::T* c, const typename Shape::T* d,
                                              typename Shape::T* x, int batch) {
    using T = typename Shape::T;
    constexpr int N = Shape::N, P = Shape::P, G = Shape::G;
    static_assert(storing != Access::async, "only loads are asynchronous");
    extern __shared__ float4 shared[];
    const int rank = threadIdx.x % G;
    T* const tile = reinterpret_cast<T*>(shared) + threadIdx.x / kWarp * tile_elements<Shape>(loading, storing);
    T rows[4][P];
    load_rows<Shape, loading>({a, b, c, d}, batch, blockIdx.x, tile, rows);
    auto& [lower, diagonal, upper, right] = rows;
    if (rank == 0) lower[0] = T{};
    if (rank == (N - 1) / P) upper[(N - 1) % P] = T{};

    scale(rows);
    solve_rows<Shape, Method>(rows);
    store_rows<Shape, storing>(x, batch, blockIdx.x, tile, right);
}
