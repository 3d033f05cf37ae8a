// The rows of a panel that a thread has: from `start` on in steps of `stride`. The panel has m rows and `count` columns
// of a matrix with n rows, from `corner` on.
#pragma once

// In registers: slot c of a row has column (k + c) mod `columns` at step k, so that a step is the same code for every
// column. Where there is no element, there is a zero.
template <class T, int columns, int R, int stride>
struct RegisterRows {
    T at[R][columns];
    T* const corner;
    const int n, m, start;

    __device__ __forceinline__ RegisterRows(T* corner, int n, int m, int count, int start)
        : RegisterRows(corner, n, m, count, start, [](int row) { return row; }) {}

    // Of rows that are found elsewhere: source(row) counts from the corner, as row does.
    template <class Source>
    __device__ __forceinline__ RegisterRows(T* corner, int n, int m, int count, int start, Source source)
        : corner(corner), n(n), m(m), start(start) {
        int from[R];
#pragma unroll
        for (int r = 0; r < R; ++r) from[r] = row(r) < m ? source(row(r)) : 0;
        const T* column = corner;
#pragma unroll
        for (int c = 0; c < columns; ++c, column += n)
#pragma unroll
            for (int r = 0; r < R; ++r) at[r][c] = row(r) < m && c < count ? column[from[r]] : T(0);
    }

    __device__ __forceinline__ int row(int r) const { return start + r * stride; }

    // The next step, with nothing changed.
    __device__ __forceinline__ void turn() {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const T first = at[r][0];
#pragma unroll
            for (int c = 1; c < columns; ++c) at[r][c - 1] = at[r][c];
            at[r][columns - 1] = first;
        }
    }

    // Writes them back after all steps, and calls act(row, column, element) for each.
    template <class Act>
    __device__ __forceinline__ void store(int count, Act act) const {
#pragma unroll
        for (int r = 0; r < R; ++r)
#pragma unroll
            for (int c = 0; c < columns; ++c)
                if (row(r) < m && c < count) {
                    corner[size_t(c) * n + row(r)] = at[r][c];
                    act(row(r), c, at[r][c]);
                }
    }
};

// In device memory, of panels that registers do not hold. No thread reads what another one has written.
template <class T, int stride>
struct MemoryRows {
    T* const corner;
    const int n, m, count, start;

    __device__ __forceinline__ MemoryRows(T* corner, int n, int m, int count, int start)
        : corner(corner), n(n), m(m), count(count), start(start) {}

    __device__ __forceinline__ T* element(int row, int c) const { return corner + size_t(c) * n + row; }

    __device__ __forceinline__ void turn() {}

    template <class Act>
    __device__ __forceinline__ void store(int, Act act) const {
        for (int c = 0; c < count; ++c)
            for (int row = start; row < m; row += stride) act(row, c, *element(row, c));
    }
};
