// Tiles of `strip` columns of a product of matrices in registers: of a thread, or of a warp with tensor cores.
//
// A slab lies in shared memory column by column, that of A with `leading_a` and that of B with `leading_b` elements from
// column to column; `padded` numbers are added up, those beyond the slab being zero. Rows and columns of a tile beyond
// the matrix hold anything, and are not written.
#pragma once
#include "batched.cuh"

enum class Algorithm { fma, mma8, mma16 };

__device__ constexpr int odd_multiple(int n, int step) { return ((n + step - 1) / step | 1) * step; }

// Fills a slab up with zeros, over which the sums go on where it has fewer columns than are added up.
template <class Tile, int depth, class T>
__device__ __forceinline__ void pad(T* a, T* b, int rank) {
    if constexpr (Tile::padded > depth) {
        for (int e = rank; e < (Tile::padded - depth) * Tile::leading_a; e += Tile::threads)
            a[depth * Tile::leading_a + e] = T(0);
        for (int e = rank; e < (Tile::padded - depth) * Tile::breadth; e += Tile::threads)
            b[e % Tile::breadth * Tile::leading_b + depth + e / Tile::breadth] = T(0);
    }
}

// The numbers of a thread: packs of rows that neighbours continue, and every so many columns.
template <class T, int n, int strip, int rows, int columns, int depth>
struct ThreadTile {
    static constexpr int down = (n + rows - 1) / rows, across = (strip + columns - 1) / columns;
    static constexpr int threads = down * across;
    static constexpr int breadth = across * columns, padded = round_up(depth, kWide<T>);
    static constexpr int leading_a = round_up(down * rows, kWide<T>);
    static constexpr int leading_b = odd_multiple(padded, kWide<T>);  // columns begin in different banks
    static constexpr int pack = common_divisor(rows, kWide<T>), packs = rows / pack;

    const int x, y;
    T sum[columns][packs][pack] = {};

    __device__ __forceinline__ explicit ThreadTile(int rank) : x(rank % down), y(rank / down) {}

    __device__ __forceinline__ void add(const T* a, const T* b) {
        // Large tiles take fewer numbers of B at once, to leave their registers to the sums.
        constexpr bool large = rows * columns >= 32;
        constexpr int span = rows * columns >= 64 ? kWide<T> / 2 : kWide<T>;
        constexpr int unrolled = large ? 1 : padded <= 32 ? padded / span : 4;
#pragma unroll (unrolled)
        for (int k = 0; k < padded; k += span) {
            T right[columns][span];
#pragma unroll
            for (int c = 0; c < columns; ++c) read(b + (y + c * across) * leading_b + k, right[c]);
#pragma unroll
            for (int w = 0; w < span; ++w) {
                T left[packs][pack];
#pragma unroll
                for (int p = 0; p < packs; ++p) read(a + (k + w) * leading_a + (x + p * down) * pack, left[p]);
#pragma unroll
                for (int c = 0; c < columns; ++c)
#pragma unroll
                    for (int p = 0; p < packs; ++p)
#pragma unroll
                        for (int r = 0; r < pack; ++r) sum[c][p][r] += left[p][r] * right[c][w];
            }
        }
    }

    __device__ __forceinline__ void write_to(T* C, int width) const {
        constexpr int access = common_divisor(pack, access_width<T>(n));
#pragma unroll
        for (int c = 0; c < columns; ++c)
#pragma unroll
            for (int p = 0; p < packs; ++p) {
                const int column = y + c * across, row = (x + p * down) * pack;
                if (column < width) store<pack, access>(C + column * n + row, access, n - row, sum[c][p]);
            }
    }
};

// Adds the product of an 8 x 4 and a 4 x 8 matrix. Lane 4 r + k has left(r, k) and right(k, r), and the numbers
// 2 k and 2 k + 1 of row r of the sum.
__device__ __forceinline__ void multiply(double (&sum)[2], double left, double right) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("mma.sync.aligned.m8n8k4.row.col.f64.f64.f64.f64 {%0, %1}, {%2}, {%3}, {%0, %1};"
                 : "+d"(sum[0]), "+d"(sum[1])
                 : "d"(left), "d"(right));
#else  // the same by shuffles, where there are no such cores
    const int lane = threadIdx.x % kWarp, row = lane / 4, column = lane % 4 * 2;
#pragma unroll
    for (int k = 0; k < 4; ++k) {
        const double factor = __shfl_sync(kAllLanes, left, row * 4 + k);
        sum[0] += factor * __shfl_sync(kAllLanes, right, column * 4 + k);
        sum[1] += factor * __shfl_sync(kAllLanes, right, column * 4 + 4 + k);
    }
#endif
}

// The same of two 8 x 4 matrices, one below the other, in one instruction.
__device__ __forceinline__ void multiply(double (&upper)[2], double (&lower)[2], double left, double below,
                                         double right) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("mma.sync.aligned.m16n8k4.row.col.f64.f64.f64.f64 {%0, %1, %2, %3}, {%4, %5}, {%6}, {%0, %1, %2, %3};"
                 : "+d"(upper[0]), "+d"(upper[1]), "+d"(lower[0]), "+d"(lower[1])
                 : "d"(left), "d"(below), "d"(right));
#else
    multiply(upper, left, right);
    multiply(lower, below, right);
#endif
}

// The numbers of a warp in tiles of 8 x 8; `pairs`: two below each other are multiplied at once.
template <int n, int strip, int rows, int columns, int depth, bool pairs>
struct WarpTile {
    static constexpr int warps_down = (n + rows - 1) / rows, warps_across = (strip + columns - 1) / columns;
    static constexpr int threads = kWarp * warps_down * warps_across;
    static constexpr int breadth = warps_across * columns, padded = round_up(depth, 4);
    static constexpr int leading_a = odd_multiple(warps_down * rows, 4);  // the lanes of a load use all banks
    static constexpr int leading_b = odd_multiple(padded, 4);
    static constexpr int down = rows / 8, across = columns / 8;

    const int row, column;  // of the warp's first tile
    const int r, k;         // of the lane
    double sum[down][across][2] = {};

    __device__ __forceinline__ explicit WarpTile(int rank)
        : row(rank / kWarp % warps_down * rows),
          column(rank / kWarp / warps_down * columns),
          r(rank % kWarp / 4),
          k(rank % 4) {}

    __device__ __forceinline__ void add(const double* a, const double* b) {
        constexpr int unrolled = padded <= 16 ? padded / 4 : 4;
        const double* const from_a = a + k * leading_a + row + r;
        const double* const from_b = b + (column + r) * leading_b + k;
#pragma unroll (unrolled)
        for (int step = 0; step < padded; step += 4) {
            double left[down], right[across];
#pragma unroll
            for (int i = 0; i < down; ++i) left[i] = from_a[step * leading_a + 8 * i];
#pragma unroll
            for (int j = 0; j < across; ++j) right[j] = from_b[8 * j * leading_b + step];
#pragma unroll
            for (int j = 0; j < across; ++j) {
                if constexpr (pairs) {
#pragma unroll
                    for (int i = 0; i < down; i += 2)
                        multiply(sum[i][j], sum[i + 1][j], left[i], left[i + 1], right[j]);
                } else {
#pragma unroll
                    for (int i = 0; i < down; ++i) multiply(sum[i][j], left[i], right[j]);
                }
            }
        }
    }

    __device__ __forceinline__ void write_to(double* C, int width) const {
        double* const to = C + (column + 2 * k) * n + row + r;
#pragma unroll
        for (int j = 0; j < across; ++j)
#pragma unroll
            for (int c = 0; c < 2; ++c) {
                if (column + 8 * j + 2 * k + c >= width) continue;
#pragma unroll
                for (int i = 0; i < down; ++i)
                    if (row + 8 * i + r < n) to[(8 * j + c) * n + 8 * i] = sum[i][j][c];
            }
    }
};

template <class T, int n, int strip, Algorithm algorithm, int rows, int columns, int depth>
struct ChosenTile {
    using Type = WarpTile<n, strip, rows, columns, depth, algorithm == Algorithm::mma16>;
};

template <class T, int n, int strip, int rows, int columns, int depth>
struct ChosenTile<T, n, strip, Algorithm::fma, rows, columns, depth> {
    using Type = ThreadTile<T, n, strip, rows, columns, depth>;
};

template <class T, int n, int strip, Algorithm algorithm, int rows, int columns, int depth>
using TileOf = typename ChosenTile<T, n, strip, algorithm, rows, columns, depth>::Type;
