// LU factorisations of small matrices, each in the registers of one thread.
#pragma once
#include "async_copy.cuh"
#include "batched.cuh"
#include "pivots.cuh"

// The largest element of column k on and below the diagonal; of equal ones the first.
template <int n, class T>
__device__ __forceinline__ Pivot<T> pivot_of(const T (&column)[n], int k) {
    Pivot<T> found = {k, column[k], T(0), false};
    auto largest = magnitude(found.value);
#pragma unroll
    for (int i = 0; i < n; ++i) {
        if (i <= k) continue;
        const auto key = magnitude(column[i]);
        const bool larger = key > largest;
        largest = larger ? key : largest;
        found.value = larger ? column[i] : found.value;
        found.row = larger ? i : found.row;
    }
    found.inverse = T(1) / found.value;
    found.divides = !is_finite(found.inverse);
    return found;
}

// Exchanges row k with a row below it.
template <int n, class T>
__device__ __forceinline__ void exchange_rows(T (&a)[n][n], int k, int row) {
#pragma unroll
    for (int i = 0; i < n; ++i) {
        if (i <= k) continue;
        const bool here = i == row;
#pragma unroll
        for (int j = 0; j < n; ++j) {
            const T upper = a[j][k], lower = a[j][i];
            a[j][k] = here ? lower : upper;
            a[j][i] = here ? upper : lower;
        }
    }
}

template <int n, class T>
__device__ __forceinline__ void transpose(T (&a)[n][n]) {
#pragma unroll
    for (int j = 0; j < n; ++j)
#pragma unroll
        for (int i = 0; i < j; ++i) {
            const T upper = a[j][i];
            a[j][i] = a[i][j];
            a[i][j] = upper;
        }
}

// Factors a matrix, whose rows are exchanged as LAPACK does it: a[j][i] is in row i, column j. `rows` is LAPACK's ipiv, from 0.
// Returns the number of the first pivot that is zero, from 1, else 0.
template <int n, class T>
__device__ __forceinline__ int factor_alone(T (&a)[n][n], int (&rows)[n]) {
    int first_zero = 0;
#pragma unroll
    for (int k = 0; k < n; ++k) {
        const Pivot<T> pivot = pivot_of(a[k], k);
        rows[k] = pivot.row;
        exchange_rows(a, k, pivot.row);
        if (pivot.value == T(0) && first_zero == 0) first_zero = k + 1;
        T below[n];
#pragma unroll
        for (int i = 0; i < n; ++i) below[i] = a[k][i] * pivot.inverse;
        if (pivot.divides) {
#pragma unroll
            for (int i = 0; i < n; ++i) below[i] = multiplier(a[k][i], pivot);
        }
#pragma unroll
        for (int i = 0; i < n; ++i) {
            if (i <= k) continue;
            a[k][i] = below[i];
#pragma unroll
            for (int j = 0; j < n; ++j)
                if (j > k) a[j][i] -= below[i] * a[j][k];
        }
    }
    return first_zero;
}

// Matrices between device memory and the threads of a warp, one of each.
template <class T, int n, bool staged>
struct Matrices {
    static constexpr int width = common_divisor(n * n, kWide<T>);  // numbers of an access
    static constexpr int packs = 1;                                // of shared memory

    static __device__ __forceinline__ void load(const T* from, int lane, int room, T*, T (&to)[n * n]) {
        ::load<n * n, width>(from + lane * n * n, width, lane < room ? n * n : 0, T(0), to);
    }
    static __device__ __forceinline__ void store(T* to, int lane, int room, T*, const T (&from)[n * n]) {
        ::store<n * n, width>(to + lane * n * n, width, lane < room ? n * n : 0, from);
    }
};

// The same through shared memory, so that accesses to device memory are of whole lines.
template <class T, int n>
struct Matrices<T, n, true> {
    static constexpr int width = common_divisor(n * n, kWide<T>);
    static constexpr int pitch = (n * n / width | 1) * width;  // so that lanes begin in different banks
    static constexpr int packs = kWarp / kWide<T> * pitch;
    static constexpr int flying = n * n / width < 16 ? n * n / width : 16;  // copies at a time

    static __device__ __forceinline__ int place(int e) { return e + e / (n * n) * (pitch - n * n); }

    static __device__ __forceinline__ void load(const T* from, int lane, int room, T* tile, T (&to)[n * n]) {
#pragma unroll (flying)
        for (int s = 0; s < kWarp * n * n; s += kWarp * width) {
            const int e = s + lane * width;
            if (e < room * n * n) copy_async<width * sizeof(T)>(tile + place(e), from + e, true);
        }
        close_group();
        wait_groups<0>();
        __syncwarp();
        ::load<n * n, width>(tile + lane * pitch, width, n * n, T(0), to);
    }
    static __device__ __forceinline__ void store(T* to, int lane, int room, T* tile, const T (&from)[n * n]) {
        ::store<n * n, width>(tile + lane * pitch, width, n * n, from);
        __syncwarp();
#pragma unroll (flying)
        for (int s = 0; s < kWarp * n * n; s += kWarp * width) {
            const int e = s + lane * width;
            if (e < room * n * n)
                *reinterpret_cast<Pack<T, width>*>(to + e) = *reinterpret_cast<const Pack<T, width>*>(tile + place(e));
        }
    }
};

// Factors one problem in each of G threads.
template <class T, int n, int G, bool staged>
__device__ __forceinline__ void factor_each(T* A, int* __restrict__ ipiv, int* __restrict__ info, int batch,
                                            int first_row, const T* from, bool turned) {
    using Memory = Matrices<T, n, staged>;
    __shared__ Pack<T, kWide<T>> staging[G / kWarp][Memory::packs];
    const int problem = blockIdx.x * G + threadIdx.x, lane = threadIdx.x % kWarp, first = problem - lane;
    T* const tile = staging[threadIdx.x / kWarp][0].at;
    T a[n][n];
    T(&all)[n * n] = reinterpret_cast<T(&)[n * n]>(a);
    Memory::load(from + (size_t)first * n * n, lane, batch - first, tile, all);
    if (turned) transpose(a);
    int rows[n];
    const int first_zero = factor_alone(a, rows);
    Memory::store(A + (size_t)first * n * n, lane, batch - first, tile, all);
    if (problem >= batch) return;
#pragma unroll
    for (int i = 0; i < n; ++i) rows[i] += first_row;
    write(ipiv + (size_t)problem * n, rows);
    info[problem] = first_zero;
}
