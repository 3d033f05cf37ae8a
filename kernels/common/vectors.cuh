// Rows of a thread's elements between memory and registers, several at an access.
#pragma once

// E elements that one access moves, aligned as it must be.
template <class T, int E>
struct alignas(E * sizeof(T)) Pack {
    T at[E];
};

// Reads P elements, E at a time, packs `stride` elements apart; `address` is aligned to a pack. Of what follows
// `address` only `room` elements are read; beyond stands `beyond`.
template <int P, int E, class T>
__device__ __forceinline__ void load(const T* address, int stride, int room, T beyond, T (&to)[P]) {
#pragma unroll
    for (int i = 0; i < P; ++i) to[i] = beyond;
#pragma unroll
    for (int i = 0; i < P; i += E) {
        const int at = i / E * stride;
        if (at >= room) continue;
        const auto pack = *reinterpret_cast<const Pack<T, E>*>(address + at);
#pragma unroll
        for (int e = 0; e < E; ++e) to[i + e] = pack.at[e];
    }
}

// Writes P elements likewise.
template <int P, int E, class T>
__device__ __forceinline__ void store(T* address, int stride, int room, const T (&from)[P]) {
#pragma unroll
    for (int i = 0; i < P; i += E) {
        const int at = i / E * stride;
        if (at >= room) continue;
        Pack<T, E> pack;
#pragma unroll
        for (int e = 0; e < E; ++e) pack.at[e] = from[i + e];
        *reinterpret_cast<Pack<T, E>*>(address + at) = pack;
    }
}
