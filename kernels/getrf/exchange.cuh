// Exchanges of rows in columns outside of a panel, as panels have exchanged theirs.
#pragma once
#include "threads.cuh"

// Of one panel, in the columns that are kept up to date with it: those of its outer block on its left, and `right`
// columns from `behind` on. These are also solved against the unit lower triangle of the panel. A warp has a column, a
// lane a row of the panel.
//   comes, goes  of the panel: see panel()
template <class T, int columns>
__global__ void __launch_bounds__(128)
    exchange(T* __restrict__ A, const int* __restrict__ comes, const int* __restrict__ goes, int height, int n, int first,
             int block, int behind, int right) {
    static_assert(columns <= kWarp, "a lane has a row");
    const int from = first / block * block, left = first - from;
    extern __shared__ float4 memory[];
    T* const triangle = reinterpret_cast<T*>(memory);
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    const bool whole = first + columns <= n;  // else nothing is on the right
    for (int e = threadIdx.x; e < columns * columns; e += 128)
        triangle[e] = whole ? A[size_t(first + e / columns) * height + first + e % columns] : T(0);
    const bool live = lane < columns && first + lane < n;
    const int origin = live ? comes[first + lane] : 0, now = live ? goes[first + lane] : 0;
    __syncthreads();

    const int number = blockIdx.x * 4 + warp, column = number < left ? from + number : behind + number - left;
    if (number >= left + right) return;
    T* const elements = A + size_t(column) * height + first;
    T entering = live ? elements[origin] : T(0);
    const T leaving = live ? elements[lane] : T(0);
    __syncwarp();
    if (number >= left) {
#pragma unroll
        for (int k = 0; k < columns - 1; ++k) {
            const T above = __shfl_sync(kAllLanes, entering, k);
            if (lane > k && lane < columns) entering -= triangle[k * columns + lane] * above;
        }
    }
    if (live) {
        elements[lane] = entering;
        if (now >= columns) elements[now] = leaving;
    }
}

// Where a row goes in the exchanges of a panel whose rows begin at `base`: by the list of the panel if it is one of its
// rows, else to the row that the list of the other direction names it in, if any. All rows count from the same one.
__device__ __forceinline__ int moved(const int* list, const int* back, int base, int count, int row) {
    int found = row;
    for (int i = 0; i < count; ++i) found = back[i] == row ? base + i : found;
    return row < base ? row : row < base + count ? list[row - base] : found;
}

constexpr int kTogether = 4;  // columns of a block that are loaded before one is stored

__device__ constexpr int columns_of(int block) { return block < 128 ? 8 : block / 16; }  // that a block has

// Of all panels of the outer block that begins at `top`, in `left` columns from the first on, and in `right` columns
// from `behind` on. A thread has rows of the outer block.
template <class T, int columns, int block>
__global__ void __launch_bounds__(256)
    exchange_all(T* __restrict__ A, const int* __restrict__ comes, const int* __restrict__ goes, int height, int n, int top,
                 int left, int behind, int right) {
    constexpr int rows = (block + 255) / 256;  // of a thread
    __shared__ int of_panels[2][block];        // the lists of the panels, from the first row of the outer block on
    const int t = threadIdx.x, count = min(block, n - top);
    for (int i = t; i < count; i += 256) {
        const int base = i / columns * columns;
        of_panels[0][i] = base + comes[top + i];
        of_panels[1][i] = base + goes[top + i];
    }
    __syncthreads();

    int origin[rows], now[rows];
#pragma unroll
    for (int r = 0; r < rows; ++r) origin[r] = now[r] = t + r * 256;
    for (int base = 0; base < count; base += columns) {  // a row moves on where it is found in the list of a panel
        const int back = (count - 1) / columns * columns - base;
        const int some = min(columns, count - base), back_some = min(columns, count - back);
#pragma unroll
        for (int r = 0; r < rows; ++r) {
            now[r] = moved(of_panels[1] + base, of_panels[0] + base, base, some, now[r]);
            origin[r] = moved(of_panels[0] + back, of_panels[1] + back, back, back_some, origin[r]);
        }
    }

    const int begin = blockIdx.x * columns_of(block), end = min(begin + columns_of(block), left + right);
    for (int number = begin; number < end; number += kTogether) {
        T entering[kTogether][rows], leaving[kTogether][rows];
#pragma unroll
        for (int c = 0; c < kTogether; ++c)
#pragma unroll
            for (int r = 0; r < rows; ++r) {
                entering[c][r] = leaving[c][r] = T(0);
                if (number + c >= end || t + r * 256 >= count) continue;
                const int column = number + c < left ? number + c : behind + number + c - left;
                const T* const elements = A + size_t(column) * height + top;
                entering[c][r] = elements[origin[r]];
                leaving[c][r] = elements[t + r * 256];
            }
        __syncthreads();
#pragma unroll
        for (int c = 0; c < kTogether; ++c)
#pragma unroll
            for (int r = 0; r < rows; ++r) {
                if (number + c >= end || t + r * 256 >= count) continue;
                const int column = number + c < left ? number + c : behind + number + c - left;
                T* const elements = A + size_t(column) * height + top;
                elements[t + r * 256] = entering[c][r];
                if (now[r] >= count) elements[now[r]] = leaving[c][r];
            }
    }
}
