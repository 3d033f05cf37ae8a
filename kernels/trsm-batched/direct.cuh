// Triangular systems without shared memory: everything is in registers.
#pragma once
#include "batched.cuh"
#include "divisors.cuh"

// A lower triangle, all of it in every thread. Rows above the diagonal hold anything.
template <class T, int n, int threads>
struct OwnTriangle {
    static constexpr int width = access_width<T>(n);

    T at[n][n];  // column by column

    __device__ __forceinline__ void load(const T* from, int) {
#pragma unroll
        for (int k = 0; k < n; ++k)
#pragma unroll
            for (int i = 0; i < n; i += width) {
                if (i + width <= k) continue;
                const auto pack = *reinterpret_cast<const Pack<T, width>*>(from + k * n + i);
#pragma unroll
                for (int w = 0; w < width; ++w) at[k][i + w] = pack.at[w];
            }
    }
    __device__ __forceinline__ T get(int i, int k) const { return at[k][i]; }
};

// The same with its columns spread over the threads of a problem, which are in one warp.
template <class T, int n, int threads>
struct SpreadTriangle {
    static constexpr int width = access_width<T>(n), own = (n + threads - 1) / threads;

    T at[own][n];

    __device__ __forceinline__ void load(const T* from, int rank) {
#pragma unroll
        for (int c = 0; c < own; ++c)
#pragma unroll
            for (int i = 0; i < n; i += width) {
                const int k = c * threads + rank;
                Pack<T, width> pack = {};
                if (k < n && k < i + width) pack = *reinterpret_cast<const Pack<T, width>*>(from + k * n + i);
#pragma unroll
                for (int w = 0; w < width; ++w) at[c][i + w] = pack.at[w];
            }
    }
    __device__ __forceinline__ T get(int i, int k) const {
        return __shfl_sync(kAllLanes, at[k / threads][i], k % threads, threads);
    }
};

// Solves `problems` of a block, whose threads have `columns` right-hand sides each.
template <template <class, int, int> class Lower, class T, int n, int columns, int problems>
__device__ __forceinline__ void solve_direct(const T* __restrict__ L, T* __restrict__ B, int batch) {
    constexpr int threads = threads_for(n, columns), own = (n + threads - 1) / threads, width = access_width<T>(n);
    static_assert(threads <= kWarp, "threads of a problem are in one warp");
    const int rank = threadIdx.x % threads, problem = blockIdx.x * problems + threadIdx.x / threads;
    const bool exists = problem < batch;
    const T* const triangle = L + (exists ? (size_t)problem * n * n : 0);
    T* const sides = B + (size_t)problem * n * n;
    T x[columns][n], diagonal[own];  // of which each thread has some
    Lower<T, n, threads> lower;
#pragma unroll
    for (int c = 0; c < own; ++c) {
        const int k = c * threads + rank;
        diagonal[c] = k < n ? triangle[k * n + k] : T(1);
    }
    lower.load(triangle, rank);
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        const int j = c * threads + rank;
        load<n, width>(sides + j * n, width, exists && j < n ? n : 0, T(0), x[c]);
    }
#pragma unroll
    for (int c = 0; c < own; ++c) diagonal[c] = divisor(diagonal[c]);
#pragma unroll
    for (int k = 0; k < n; ++k) {
        const T by = __shfl_sync(kAllLanes, diagonal[k / threads], k % threads, threads);
#pragma unroll
        for (int c = 0; c < columns; ++c) x[c][k] = divided(x[c][k], by);
#pragma unroll
        for (int i = 0; i < n; ++i) {
            if (i <= k) continue;
            const T element = lower.get(i, k);
#pragma unroll
            for (int c = 0; c < columns; ++c) x[c][i] -= element * x[c][k];
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        const int j = c * threads + rank;
        store<n, width>(sides + j * n, width, exists && j < n ? n : 0, x[c]);
    }
}
