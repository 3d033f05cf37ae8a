// Equations of tridiagonal systems, and how they travel between threads.
#pragma once
#include "threads.cuh"

// An unknown by one to its left and one to its right: x = d - l x_left - r x_right.
struct Row {
    float l, r, d;
};

// Errs by 1 ulp at most, which these systems do not notice, and takes one instruction. Pivots of scaled rows are far from
// the ends of its range: it gives 0 beyond 2^126 in magnitude, and infinity below 2^-126.
__device__ __forceinline__ float reciprocal(float x) {
#ifdef __CUDA_ARCH__
    float y;
    asm("rcp.approx.ftz.f32 %0, %1;" : "=f"(y) : "f"(x));
    return y;
#else
    return 1.0f / x;
#endif
}

// A power of two that brings `largest`, the largest coefficient of a row, between 1/2 and 8. One instruction: the
// exponent's complement without its last two bits, and 1 in their place. Denormal numbers become 2^-23 at least.
__device__ __forceinline__ float scale_of(float largest) {
    return __int_as_float(~__float_as_int(largest) & 0x7e000000 | 0x00800000);
}

// `row` with its right unknown replaced by `next`, the equation of that unknown. Both have the same left unknown.
__device__ __forceinline__ Row in_left(Row row, Row next) {
    return {row.l - row.r * next.l, -row.r * next.r, row.d - row.r * next.d};
}

// `row` with its left unknown replaced by `previous`. Both have the same right unknown.
__device__ __forceinline__ Row in_right(Row row, Row previous) {
    return {-row.l * previous.l, row.r - row.l * previous.r, row.d - row.l * previous.d};
}

// Two equations, each with the other's unknown between them, become independent of each other.
__device__ __forceinline__ void join(Row& last, Row& first) {
    const float k = reciprocal(1.0f - last.r * first.l);
    const Row left = last, right = first;
    last = {left.l * k, -left.r * right.r * k, (left.d - left.r * right.d) * k};
    first = {-right.l * left.l * k, right.r * k, (right.d - right.l * left.d) * k};
}

// `row` with both of its neighbours' unknowns replaced by those beyond them.
__device__ __forceinline__ Row reduced(Row row, Row before, Row after) {
    const float k = reciprocal(1.0f - row.l * before.r - row.r * after.l);
    return {-row.l * before.l * k, -row.r * after.r * k, (row.d - row.l * before.d - row.r * after.d) * k};
}

// ---- exchange ------------------------------------------------------------------------------------------------
// What all threads of a system publish (or those that have what is wanted), each can then take from any of them. A rank
// outside of the system is taken modulo its size: what comes from there is multiplied by a coefficient that is zero,
// and must come from the same system so that NaN spoils no other. Values are structs of up to three floats.

template <class T>
constexpr int floats = sizeof(T) / sizeof(float);

template <class T>
__device__ __forceinline__ float& part(T& value, int i) {
    static_assert(floats<T> <= 3, "up to three floats");
    return reinterpret_cast<float*>(&value)[i];
}

// By shuffles among W lanes. Every lane must take part in every `of`.
template <int W>
struct ByShuffle {
    static constexpr bool together = true;
    template <class T>
    __device__ __forceinline__ void publish(T value, bool = true) {
#pragma unroll
        for (int i = 0; i < floats<T>; ++i) held[i] = part(value, i);
    }
    template <class T>
    __device__ __forceinline__ T of(int rank) const {
        T value;
#pragma unroll
        for (int i = 0; i < floats<T>; ++i) part(value, i) = __shfl_sync(kAllLanes, held[i], rank, W);
        return value;
    }
    float held[3];
};

// Through shared memory, in two places in turn so that one barrier an exchange is enough: who writes a place
// again has passed the barrier of the exchange between.
template <int G, int L>
struct ByShared {
    static constexpr bool together = false;
    template <class T>
    __device__ __forceinline__ void publish(T value, bool wanted = true) {
        turn ^= 1;
        if (wanted) {
#pragma unroll
            for (int i = 0; i < floats<T>; ++i) places[turn][i][threadIdx.x] = part(value, i);
        }
        meet<G>();
    }
    template <class T>
    __device__ __forceinline__ T of(int rank) const {
        const int thread = threadIdx.x / G * G + rank % G;
        T value;
#pragma unroll
        for (int i = 0; i < floats<T>; ++i) part(value, i) = places[turn][i][thread];
        return value;
    }
    float (*places)[3][L];
    int turn = 0;
};
