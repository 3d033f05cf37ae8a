// Triangular systems without shared memory: right-hand sides in registers, L there too where it is small, else in the L1.
#pragma once
#include "batched.cuh"

// Has the L1 fetch what lies at an address.
__device__ __forceinline__ void touch(const void* at) {
#if defined(__CUDA_ARCH__)
    asm volatile("{ .reg .b32 unused; ld.global.nc.b32 unused, [%0]; }" ::"l"(at));
#endif
}

// Columns of a lower triangle. Rows above the diagonal hold anything.
template <class T, int n, bool in_registers>
struct Columns {
    static constexpr int width = access_width<T>(n);

    const T* const from;

    __device__ __forceinline__ explicit Columns(const T* from) : from(from) {}

    // Rows k to n - 1 of column k.
    __device__ __forceinline__ void read(int k, T (&to)[n]) const {
#pragma unroll
        for (int i = 0; i < n; i += width) {
            if (i + width <= k) continue;
            const auto pack = *reinterpret_cast<const Pack<T, width>*>(from + k * n + i);
#pragma unroll
            for (int w = 0; w < width; ++w) to[i + w] = pack.at[w];
        }
    }

    // Called before the first column is read by the thread that has column k: all that is read later is on its way.
    __device__ __forceinline__ void begin(int k) const {
        constexpr int sector = 32 / sizeof(T);
#pragma unroll
        for (int step = sector; step < n + sector - 1; step += sector)
            if (k < n && k + step < n + sector - 1) touch(from + k * n + (k + step < n ? k + step : n - 1));
    }
};

template <class T, int n>
struct Columns<T, n, true> {
    T at[n][n];

    __device__ __forceinline__ explicit Columns(const T* from) {
        const Columns<T, n, false> columns(from);
#pragma unroll
        for (int k = 0; k < n; ++k) columns.read(k, at[k]);
    }
    __device__ __forceinline__ void read(int k, T (&to)[n]) const {
#pragma unroll
        for (int i = 0; i < n; ++i)
            if (i >= k) to[i] = at[k][i];
    }
    __device__ __forceinline__ void begin(int) const {}
};

// `problems` of a block, whose threads have `columns` right-hand sides each.
template <class T, int n, int columns, int problems>
__device__ __forceinline__ void solve_direct(const T* __restrict__ L, T* __restrict__ B, int batch) {
    constexpr int threads = threads_for(n, columns), own = (n + threads - 1) / threads, width = access_width<T>(n);
    static_assert(threads <= kWarp, "threads of a problem are in one warp");
    const int rank = threadIdx.x % threads, problem = blockIdx.x * problems + threadIdx.x / threads;
    const bool exists = problem < batch;
    const T* const triangle = L + (exists ? (size_t)problem * n * n : 0);
    T* const sides = B + (size_t)problem * n * n;
    T x[columns][n], inverse[own];  // of the diagonal, of which each thread has some
#pragma unroll
    for (int c = 0; c < own; ++c) {
        const int k = c * threads + rank;
        inverse[c] = k < n ? triangle[k * n + k] : T(1);
    }
    const Columns<T, n, n*(n + 1) / 2 * sizeof(T) <= 320> lower(triangle);
#pragma unroll
    for (int c = 0; c < own; ++c) lower.begin(c * threads + rank);
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        const int j = c * threads + rank;
        load<n, width>(sides + j * n, width, exists && j < n ? n : 0, T(0), x[c]);
    }
#pragma unroll
    for (int c = 0; c < own; ++c) inverse[c] = T(1) / inverse[c];
#pragma unroll
    for (int k = 0; k < n; ++k) {
        T left[n];
        lower.read(k, left);
        const T factor = __shfl_sync(kAllLanes, inverse[k / threads], k % threads, threads);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            x[c][k] *= factor;
#pragma unroll
            for (int i = 0; i < n; ++i)
                if (i > k) x[c][i] -= left[i] * x[c][k];
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        const int j = c * threads + rank;
        store<n, width>(sides + j * n, width, exists && j < n ? n : 0, x[c]);
    }
}
