// Cholesky factorisation A = L L' of one column-major matrix in place, the lower triangle, as LAPACK's potrf: what a
// library does not do of it. The matrix is factored in panels of `columns` columns.
//
// Every block of a panel factors the diagonal block itself, so that no block waits for another. The factor goes to
// `diagonals` and not to A, where other blocks may not have read it yet. `diagonals` has `pitch` rows and n columns: of
// every column those rows that lie in its diagonal block of order `pitch`. Until the end it also keeps what the matrix
// has above the diagonal there, as products of the library overwrite it.
#include "batched.cuh"

__device__ __forceinline__ float inverse_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double inverse_root(double x) { return rsqrt(x); }

// Factors a diagonal block of order `width`, row by row in shared memory, and solves a row against it.
//   corner   the block, its products with columns before it already subtracted
//   row      elements of the thread's row, likewise; then elements of L
//   returns  the first column whose pivot is not positive, from 1, or 0
template <class T, int width>
__device__ __forceinline__ int solve(const T* corner, T (&row)[width]) {
    T block[width][width];
    int bad = 0;
#pragma unroll
    for (int a = 0; a < width; ++a) read(corner + a * width, block[a]);
#pragma unroll
    for (int c = 0; c < width; ++c) {
        const T pivot = block[c][c];
        if (!(pivot > T(0)) && bad == 0) bad = c + 1;
        const T inverse = inverse_root(pivot);
#pragma unroll
        for (int a = c + 1; a < width; ++a) block[a][c] *= inverse;
#pragma unroll
        for (int b = c + 1; b < width; ++b)
#pragma unroll
            for (int a = b; a < width; ++a) block[a][b] -= block[a][c] * block[b][c];
        T x = row[c];
#pragma unroll
        for (int b = 0; b < c; ++b) x -= row[b] * block[c][b];
        row[c] = x * inverse;
    }
    return bad;
}

// The panel whose diagonal block begins at (first, first). A thread has a row: the first `columns` threads of every block
// those of the diagonal block, the others rows below it. Orders that are no multiple of `columns` are filled up by rows
// and columns of the identity. info: 0, or the order of the first leading minor that is not positive, or no number.
template <class T, int columns, int threads>
__global__ void __launch_bounds__(threads)
    panel(T* __restrict__ A, T* __restrict__ diagonals, int* __restrict__ info, int n, int pitch, int first) {
    constexpr int width = 8;                 // columns that are factored together, with two barriers
    constexpr int flying = 256 / sizeof(T);  // loads before one is waited for
    static_assert(columns % width == 0 && threads > columns, "rows below the block have threads");
    extern __shared__ float4 shared[];
    T* const tile = reinterpret_cast<T*>(shared);  // column by column, a row for each thread
    T* const corner = tile + columns * threads;
    const int t = threadIdx.x;
    const bool inside = t < columns;
    const int row = first + t + (inside ? 0 : blockIdx.x * (threads - columns));
    const int count = min(columns, n - first);

#pragma unroll(flying)
    for (int k = 0; k < columns; ++k) {
        const bool stored = row < n && k < count && (!inside || k <= t);
        tile[k * threads + t] = stored ? A[size_t(first + k) * n + row] : T(inside && t == k);
    }
    int bad = 0;
#pragma unroll 1
    for (int p = 0; p < columns; p += width) {
        T sum[width];
        if (t >= p) {
#pragma unroll
            for (int c = 0; c < width; ++c) sum[c] = tile[(p + c) * threads + t];
#pragma unroll(flying / 4)
            for (int k = 0; k < p; ++k) {
                const T left = tile[k * threads + t];
                T above[width];
                read(tile + k * threads + p, above);
#pragma unroll
                for (int c = 0; c < width; ++c) sum[c] -= left * above[c];
            }
            if (t < p + width) write(corner + (t - p) * width, sum);
        }
        __syncthreads();
        if (t >= p) {
            const int found = solve<T, width>(corner, sum);
            if (bad == 0 && found != 0) bad = p + found;
#pragma unroll
            for (int c = 0; c < width; ++c)
                if (t >= p + c) tile[(p + c) * threads + t] = sum[c];
        }
        __syncthreads();
    }
    if (row >= n) return;
    if (!inside) {
#pragma unroll 8
        for (int k = 0; k < columns; ++k) A[size_t(first + k) * n + row] = tile[k * threads + t];
    } else if (blockIdx.x == 0) {
        for (int k = 0; k <= t; ++k)
            diagonals[size_t(first + k) * pitch + first % pitch + t] = tile[k * threads + t];
        if (t == count - 1) {
            const int before = first == 0 ? 0 : *info;
            *info = before != 0 || bad == 0 ? before : first + bad;
        }
    }
}

// Keeps what lies above the diagonal in the diagonal blocks of order `pitch`. A warp has a column.
template <class T>
__global__ void __launch_bounds__(128) keep(const T* __restrict__ A, T* __restrict__ diagonals, int n, int pitch) {
    const int column = blockIdx.x * 4 + threadIdx.x / kWarp;
    if (column >= n) return;
    const int start = column / pitch * pitch;
    for (int row = start + threadIdx.x % kWarp; row < column; row += kWarp)
        diagonals[size_t(column) * pitch + row - start] = A[size_t(column) * n + row];
}

// Brings that back, and L into the diagonal blocks of panels.
template <class T, int columns>
__global__ void __launch_bounds__(128) finish(T* __restrict__ A, const T* __restrict__ diagonals, int n, int pitch) {
    const int column = blockIdx.x * 4 + threadIdx.x / kWarp;
    if (column >= n) return;
    const int start = column / pitch * pitch, end = min(n, column / columns * columns + columns);
    for (int row = start + threadIdx.x % kWarp; row < end; row += kWarp)
        A[size_t(column) * n + row] = diagonals[size_t(column) * pitch + row - start];
}
