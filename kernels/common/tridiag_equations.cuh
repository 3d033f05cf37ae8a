// Equations of tridiagonal systems, and how they travel between threads.
#pragma once
#include "tridiag_elements.cuh"

// An unknown by one to its left and one to its right: x = d - l x_left - r x_right. With several right sides, d and the
// unknowns are of a type D that holds a number for each.
template <class T, class D = T>
struct Row {
    T l, r;
    D d;
};

// `row` with its right unknown replaced by `next`, the equation of that unknown. Both have the same left unknown.
template <class T, class D>
__device__ __forceinline__ Row<T, D> in_left(Row<T, D> row, Row<T, D> next) {
    return {row.l - row.r * next.l, -row.r * next.r, row.d - row.r * next.d};
}

// `row` with its left unknown replaced by `previous`. Both have the same right unknown.
template <class T, class D>
__device__ __forceinline__ Row<T, D> in_right(Row<T, D> row, Row<T, D> previous) {
    return {-row.l * previous.l, row.r - row.l * previous.r, row.d - row.l * previous.d};
}

// Two equations, each with the other's unknown between them, become independent of each other.
template <class T, class D>
__device__ __forceinline__ void join(Row<T, D>& last, Row<T, D>& first) {
    const T k = reciprocal(T{1} - last.r * first.l);
    const Row<T, D> left = last, right = first;
    last = {left.l * k, -left.r * right.r * k, (left.d - left.r * right.d) * k};
    first = {-right.l * left.l * k, right.r * k, (right.d - right.l * left.d) * k};
}

// `row` with both of its neighbours' unknowns replaced by those beyond them.
template <class T, class D>
__device__ __forceinline__ Row<T, D> reduced(Row<T, D> row, Row<T, D> before, Row<T, D> after) {
    const T k = reciprocal(T{1} - row.l * before.r - row.r * after.l);
    return {-row.l * before.l * k, -row.r * after.r * k, (row.d - row.l * before.d - row.r * after.d) * k};
}

// ---- exchange ------------------------------------------------------------------------------------------------
// What all threads of a system publish (or those that have what is wanted), each can then take from any of them. A rank
// outside of the system is taken modulo its size: what comes from there is multiplied by a coefficient that is zero,
// and must come from the same system so that NaN spoils no other. Values are structs of up to three numbers.

template <class Part, class Value>
constexpr int parts = sizeof(Value) / sizeof(Part);

template <class Part, class Value>
__device__ __forceinline__ Part& part(Value& value, int i) {
    return reinterpret_cast<Part*>(&value)[i];
}

// By shuffles among W lanes. Every lane must take part in every `of`.
template <class T, int W, class D = T>
struct ByShuffle {
    using Part = Real<T>;
    static constexpr bool together = true;
    static constexpr int most = parts<Part, Row<T, D>>;
    template <class Value>
    __device__ __forceinline__ void publish(Value value, bool = true) {
        static_assert(parts<Part, Value> <= most, "a row at most");
#pragma unroll
        for (int i = 0; i < parts<Part, Value>; ++i) held[i] = part<Part>(value, i);
    }
    template <class Value>
    __device__ __forceinline__ Value of(int rank) const {
        Value value;
#pragma unroll
        for (int i = 0; i < parts<Part, Value>; ++i) part<Part>(value, i) = of_lane(held[i], rank, W);
        return value;
    }
    Part held[most];
};

// Through shared memory, in two places in turn so that one barrier an exchange is enough: who writes a place
// again has passed the barrier of the exchange between.
template <class T, int G, int L>
struct ByShared {
    static constexpr bool together = false;
    template <class Value>
    __device__ __forceinline__ void publish(Value value, bool wanted = true) {
        static_assert(parts<T, Value> <= 3, "up to three numbers");
        turn ^= 1;
        if (wanted) {
#pragma unroll
            for (int i = 0; i < parts<T, Value>; ++i) places[turn][i][threadIdx.x] = part<T>(value, i);
        }
        meet<G>();
    }
    template <class Value>
    __device__ __forceinline__ Value of(int rank) const {
        const int thread = threadIdx.x / G * G + rank % G;
        Value value;
#pragma unroll
        for (int i = 0; i < parts<T, Value>; ++i) part<T>(value, i) = places[turn][i][thread];
        return value;
    }
    T (*places)[3][L];
    int turn = 0;
};
