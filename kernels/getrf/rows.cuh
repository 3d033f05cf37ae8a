// The rows of a panel: in the registers of the threads, or in device memory where these do not hold them.
#pragma once
#include "panel_rows.cuh"
#include "pivots.cuh"

// A candidate for the pivot row.
template <class T, int columns>
struct alignas(16) Line {
    T values[columns];
    typename Candidate<T>::Key key;  // of its element in this column
    T inverse;                       // of that element
    int place, origin;               // its row by now, and before the panel
};

// The largest element of a column: that of a thread, if it is the best of its warp.
template <class T>
struct Choice {
    Candidate<T> best;
    bool mine;

    __device__ __forceinline__ void of(const Candidate<T>& candidate) {
        best = best_of_warp(candidate);
        mine = candidate.row == best.row;
    }
};

// Rows stay where they are, and their places change: they are exchanged when they are stored.
template <class T, int columns, int R, int stride>
struct InRegisters : RegisterRows<T, columns, R, stride> {
    using Rows = RegisterRows<T, columns, R, stride>;
    using Rows::at, Rows::corner, Rows::m, Rows::n, Rows::row;

    int place[R];  // -1 of no row

    template <class Source>
    __device__ __forceinline__ InRegisters(T* corner, int n, int m, int count, int start, Source source)
        : Rows(corner, n, m, count, start, source) {
#pragma unroll
        for (int r = 0; r < R; ++r) place[r] = row(r) < m ? row(r) : -1;
    }

    // Subtracts the products of `columns` columns from `lower` on, and the rows of `upper`.
    __device__ __forceinline__ void subtract(const T* lower, const T* upper) {
#pragma unroll(R* columns > 64 ? 2 : 8)
        for (int k = 0; k < columns; ++k) {
            T l[R], u[columns];
#pragma unroll
            for (int r = 0; r < R; ++r) l[r] = row(r) < m ? lower[size_t(k) * n + row(r)] : T(0);
#pragma unroll
            for (int c = 0; c < columns; ++c) u[c] = upper[k * columns + c];
#pragma unroll
            for (int r = 0; r < R; ++r)
#pragma unroll
                for (int c = 0; c < columns; ++c) at[r][c] -= l[r] * u[c];
        }
    }

    __device__ __forceinline__ void choose(int k, Choice<T>& choice) const {
        Candidate<T> mine{-1, m + row(0)};
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (place[r] >= k) mine.take_better(magnitude(at[r][0]), place[r]);
        choice.of(mine);
    }

    __device__ __forceinline__ void publish(int, int which, Line<T, columns>& line) const {
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (place[r] == which) {
#pragma unroll
                for (int c = 0; c < columns; ++c) line.values[c] = at[r][c];
                line.inverse = T(1) / at[r][0];
                line.origin = row(r);
            }
    }

    __device__ __forceinline__ static T pivot(const Line<T, columns>& line, int) { return line.values[0]; }

    // Exchanges the pivot row with row k.
    __device__ __forceinline__ void exchange(int k, const Line<T, columns>& line) {
        const int other = line.place, origin = line.origin;
#pragma unroll
        for (int r = 0; r < R; ++r) place[r] = row(r) == origin ? k : place[r] == k ? other : place[r];
    }

    // Divides column k below the pivot.
    __device__ __forceinline__ void divide(int k, T pivot) {
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (place[r] > k) at[r][0] /= pivot;
    }

    // Eliminates column k below the pivot, turns the slots on, and searches the next column as soon as it is known.
    __device__ __forceinline__ void eliminate(int k, const Line<T, columns>& line, T scale, Choice<T>& choice) {
        T u[columns], l[R];
#pragma unroll
        for (int c = 0; c < columns; ++c) u[c] = line.values[c];
#pragma unroll
        for (int c = 1; c < columns; ++c) u[c] = c < columns - k ? u[c] : T(0);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const bool below = place[r] > k;
            const T last = below ? at[r][0] * scale : at[r][0];
            l[r] = below ? last : T(0);
            at[r][0] = at[r][1] - l[r] * u[1];
            at[r][1] = last;
        }
        choose(k + 1, choice);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const T last = at[r][1];
#pragma unroll
            for (int c = 2; c < columns; ++c) at[r][c - 1] = at[r][c] - l[r] * u[c];
            at[r][columns - 1] = last;
        }
    }

    // Writes the rows to their places. `comes` says where the rows of the diagonal block come from, `goes` where
    // those that were there have gone.
    __device__ __forceinline__ void finish(int count, const int*, int* comes, int* goes) const {
        T* column = corner;
#pragma unroll
        for (int c = 0; c < columns; ++c, column += n)
#pragma unroll
            for (int r = 0; r < R; ++r)
                if (c < count && place[r] >= 0) column[place[r]] = at[r][c];
#pragma unroll
        for (int r = 0; r < R; ++r) {
            if (place[r] >= 0 && place[r] < count) comes[place[r]] = row(r);
            if (row(r) < count) goes[row(r)] = place[r];
        }
    }
};

// Rows are exchanged at once, by the thread that has the pivot row.
template <class T, int columns, int stride>
struct InMemory : MemoryRows<T, stride> {
    using Rows = MemoryRows<T, stride>;
    using Rows::count, Rows::element, Rows::m, Rows::start, Rows::Rows;

    __device__ __forceinline__ void choose(int k, Choice<T>& choice) const {
        Candidate<T> mine{-1, m + start};
        for (int row = start; row < m; row += stride)
            if (row >= k && k < count) mine.take_better(magnitude(*element(row, k)), row);
        choice.of(mine);
    }

    __device__ __forceinline__ void publish(int k, int which, Line<T, columns>& line) const {
        for (int c = 0; c < count; ++c) line.values[c] = *element(which, c);
        line.inverse = T(1) / line.values[k];
        line.origin = which;
    }

    __device__ __forceinline__ static T pivot(const Line<T, columns>& line, int k) { return line.values[k]; }

    __device__ __forceinline__ void exchange(int k, const Line<T, columns>& line) {
        const int other = line.place;
        if (other == k || other % stride != start) return;
        for (int c = 0; c < count; ++c) {
            const T displaced = *element(k, c);
            *element(k, c) = line.values[c];
            *element(other, c) = displaced;
        }
    }

    __device__ __forceinline__ void divide(int k, T pivot) {
        for (int row = start; row < m; row += stride)
            if (row > k) *element(row, k) /= pivot;
    }

    __device__ __forceinline__ void eliminate(int k, const Line<T, columns>& line, T scale, Choice<T>& choice) {
        for (int row = start; row < m; row += stride) {
            if (row <= k) continue;
            const T l = *element(row, k) * scale;
            *element(row, k) = l;
#pragma unroll 8
            for (int c = k + 1; c < count; ++c) *element(row, c) -= l * line.values[c];
        }
        choose(k + 1, choice);
    }

    // As above, of rows that are where they should be.
    __device__ __forceinline__ void finish(int, const int* pivots, int* comes, int* goes) const {
        if (start >= count) return;
        int origin = start, now = start;
        for (int i = count - 1; i >= 0; --i) origin = origin == i ? pivots[i] : origin == pivots[i] ? i : origin;
        for (int i = 0; i < count; ++i) now = now == i ? pivots[i] : now == pivots[i] ? i : now;
        comes[start] = origin;
        goes[start] = now;
    }
};
