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
template <class T, class D, int P>
__device__ __forceinline__ void scale(T (&a)[P], T (&b)[P], T (&c)[P], D (&d)[P]) {
#pragma unroll
    for (int i = 0; i < P; ++i) {
        const auto k = scale_of(a[i], b[i], c[i]);
        a[i] *= k, b[i] *= k, c[i] *= k, d[i] *= k;
    }
}

// Leaves row i as x_i = d_i - a_i x_left - c_i x_(i+1), where x_left is the unknown before the thread's first.
template <class T, class D, int P>
__device__ __forceinline__ void eliminate_lower(T (&a)[P], T (&b)[P], T (&c)[P], D (&d)[P]) {
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
template <class T, class D, int P>
__device__ __forceinline__ Row<T, D> eliminate(T (&a)[P], T (&b)[P], T (&c)[P], D (&d)[P]) {
    eliminate_lower(a, b, c, d);
    Row<T, D> first = {a[P - 2], c[P - 2], d[P - 2]};
#pragma unroll
    for (int i = P - 3; i >= 0; --i) first = {a[i] - c[i] * first.l, -c[i] * first.r, d[i] - c[i] * first.d};
    return first;
}

// The equations of a thread's rows: its first unknown, and its last
template <class T, class D = T>
struct Ends {
    Row<T, D> first, last;
};

// The unknown before the thread's first, which is any number for the first thread of a system, and its last
template <class D>
struct Solution {
    D left, last;
};

// Unknowns of eliminated rows, by those of the thread's ends, in place of the right sides
template <class T, class D, int P>
__device__ __forceinline__ void substitute(const T (&a)[P], const T (&c)[P], D (&d)[P], Solution<D> ends) {
    d[P - 1] = ends.last;
#pragma unroll
    for (int i = P - 2; i >= 0; --i) d[i] -= a[i] * ends.left + c[i] * d[i + 1];
}

// Shared memory of a warp that its rows pass through
template <class Shape>
__device__ constexpr int tile_elements(Access load, Access store) {
    return Shape::rows * (load == Access::async ? 4 : load == Access::direct && store == Access::direct ? 0 : 1);
}

// The systems of a block, whose rows are scaled and whose corners are 0; unknowns take the place of the right sides.
//   Method  solves the reduced system: `solve(first, last)` of the thread's equations
template <class Shape, class Method, class D>
__device__ __forceinline__ void solve_rows(typename Shape::T (&a)[Shape::P], typename Shape::T (&b)[Shape::P],
                                           typename Shape::T (&c)[Shape::P], D (&d)[Shape::P]) {
    constexpr int last = Shape::P - 1;
    const Row<typename Shape::T, D> first = eliminate(a, b, c, d);
    Solution<D> ends = {D{}, d[last]};
    if constexpr (Shape::G > 1) ends = Method::solve(first, {a[last], c[last], d[last]});
    substitute(a, c, d, ends);
}

// Solves `batch` systems a_i x_(i-1) + b_i x_i + c_i x_(i+1) = d_i of N rows; a_0 and c_(N-1) count as 0. In place, x is
// d's memory.
// The launch gives shared memory for 4 P L numbers if rows are loaded async, else for P L if they are transposed.
template <class Shape, Access loading, Access storing, class Method>
__device__ __forceinline__ void solve_systems(const typename Shape::T* a, const typename Shape::T* b,
                                              const typename Shape::T* c, const typename Shape::T* d,
                                              typename Shape::T* x, int batch, const typename Shape::Layout& layout) {
    using T = typename Shape::T;
    constexpr int N = Shape::N, P = Shape::P, G = Shape::G;
    static_assert(storing != Access::async, "only loads are asynchronous");
    extern __shared__ float4 shared[];
    const int rank = threadIdx.x % G;
    T* const tile = reinterpret_cast<T*>(shared) + threadIdx.x / kWarp * tile_elements<Shape>(loading, storing);
    T rows[4][P];
    load_rows<Shape, loading>({a, b, c, layout.source(d, x)}, batch, blockIdx.x, tile, rows, layout);
    auto& [lower, diagonal, upper, right] = rows;
    if (rank == 0) lower[0] = T{};
    if (rank == (N - 1) / P) upper[(N - 1) % P] = T{};

    scale(lower, diagonal, upper, right);
    solve_rows<Shape, Method>(lower, diagonal, upper, right);
    store_rows<Shape, storing>(x, batch, blockIdx.x, tile, right, layout);
}
