// Global and shared memory in vectors of up to 16 bytes.
#pragma once
#include "threads.cuh"

template <int E>
struct Vector;
template <>
struct Vector<2> {
    using type = float2;
};
template <>
struct Vector<4> {
    using type = float4;
};

// Elements of one access when a thread owns P of them.
template <int P>
constexpr int kVector = P < 4 ? P : 4;

__device__ __forceinline__ void unpack(float2 v, float* to) { to[0] = v.x, to[1] = v.y; }
__device__ __forceinline__ void unpack(float4 v, float* to) { to[0] = v.x, to[1] = v.y, to[2] = v.z, to[3] = v.w; }
__device__ __forceinline__ void pack(const float* from, float2& v) { v = make_float2(from[0], from[1]); }
__device__ __forceinline__ void pack(const float* from, float4& v) {
    v = make_float4(from[0], from[1], from[2], from[3]);
}

// Reads P elements, a vector at a time, vectors `stride` elements apart; `address` is aligned to a vector.
// Of what follows `address` only `room` elements are read; beyond stands `beyond`.
template <int P, int E = kVector<P>>
__device__ __forceinline__ void load(const float* address, int stride, int room, float beyond, float (&to)[P]) {
#pragma unroll
    for (int i = 0; i < P; ++i) to[i] = beyond;
#pragma unroll
    for (int i = 0; i < P; i += E) {
        const int at = i / E * stride;
        if (at < room) unpack(*reinterpret_cast<const typename Vector<E>::type*>(address + at), to + i);
    }
}

template <int P, int E = kVector<P>>
__device__ __forceinline__ void store(float* address, int stride, int room, const float (&from)[P]) {
#pragma unroll
    for (int i = 0; i < P; i += E) {
        const int at = i / E * stride;
        if (at < room) pack(from + i, *reinterpret_cast<typename Vector<E>::type*>(address + at));
    }
}

// Place of vector `i` in a warp's tile: neither consecutive lanes nor lanes 2, 4 or 8 vectors apart share a bank.
__device__ __forceinline__ int swizzled(int i) { return i ^ (i / 8 % 8); }

// Changes a warp's 32 P elements from "vector i at 32 i + lane" to "lane owns P in a row" and back, in place.
// `tile` holds the warp's 8 P vectors and belongs to it alone.
template <int P>
__device__ __forceinline__ void striped_to_blocked(float (&values)[P], float4* tile, int lane) {
#pragma unroll
    for (int i = 0; i < P / 4; ++i) pack(values + 4 * i, tile[swizzled(i * kWarp + lane)]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < P / 4; ++i) unpack(tile[swizzled(lane * (P / 4) + i)], values + 4 * i);
    __syncwarp();
}

template <int P>
__device__ __forceinline__ void blocked_to_striped(float (&values)[P], float4* tile, int lane) {
#pragma unroll
    for (int i = 0; i < P / 4; ++i) pack(values + 4 * i, tile[swizzled(lane * (P / 4) + i)]);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < P / 4; ++i) unpack(tile[swizzled(i * kWarp + lane)], values + 4 * i);
    __syncwarp();
}
