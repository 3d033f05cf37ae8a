// Thread-block clusters: which block a thread is in, barriers, and writes to another block's shared memory
// (PTX ISA, "Cluster of CTAs", mapa, barrier.cluster, st and st.async). They need sm_90.
// On a host that runs blocks one at a time, a cluster of B blocks is one block of B * blockDim threads: shared memory
// is cut into B parts, and every block barrier is one of the cluster.
#pragma once

#include "bulk.cuh"

// A place in the shared memory of some block of the cluster
struct Remote {
#ifdef __CUDACC__
    unsigned address;
#else
    char* address;
#endif
    __device__ __forceinline__ Remote operator+(unsigned bytes) const { return {address + bytes}; }
};

#ifdef __CUDACC__

template <int threads>
__device__ __forceinline__ unsigned thread_of_block() {
    return threadIdx.x;
}

template <int threads>
__device__ __forceinline__ unsigned block_of_cluster() {
    unsigned rank;
    asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
    return rank;
}

template <int B>
__device__ __forceinline__ unsigned this_cluster() {
    return blockIdx.x / B;
}

// The shared memory of this block
template <int bytes>
__device__ __forceinline__ char* part_of(char* memory, unsigned) {
    return memory;
}

// What stands at `place` in this block, in block `rank`
template <int bytes>
__device__ __forceinline__ Remote in_block(const void* place, unsigned, unsigned rank) {
    Remote there;
    asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(there.address) : "r"(shared_address(place)), "r"(rank));
    return there;
}

// Arrivals and waits of a cluster's threads take turns. Without order, other blocks are only known to have come.
template <bool in_order>
__device__ __forceinline__ void cluster_arrive() {
    if constexpr (in_order)
        asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory");
    else
        asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory");
}

__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

// Writes 8 or 16 bytes; with `counted` they count at `barrier`, which lies in the same block as `there`.
template <bool counted>
__device__ __forceinline__ void put(Remote there, float2 v, Remote barrier) {
    if constexpr (counted)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v2.f32 [%0], {%1, %2}, [%3];" ::"r"(
                         there.address),
                     "f"(v.x), "f"(v.y), "r"(barrier.address)
                     : "memory");
    else
        asm volatile("st.shared::cluster.v2.f32 [%0], {%1, %2};" ::"r"(there.address), "f"(v.x), "f"(v.y) : "memory");
}

template <bool counted>
__device__ __forceinline__ void put(Remote there, float4 v, Remote barrier) {
    if constexpr (counted)
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                         there.address),
                     "f"(v.x), "f"(v.y), "f"(v.z), "f"(v.w), "r"(barrier.address)
                     : "memory");
    else
        asm volatile("st.shared::cluster.v4.f32 [%0], {%1, %2, %3, %4};" ::"r"(there.address), "f"(v.x), "f"(v.y),
                     "f"(v.z), "f"(v.w)
                     : "memory");
}

#else

#define __cluster_dims__(...)

template <int threads>
unsigned thread_of_block() {
    return threadIdx.x % threads;
}
template <int threads>
unsigned block_of_cluster() {
    return threadIdx.x / threads;
}
template <int B>
unsigned this_cluster() {
    return blockIdx.x;
}
template <int bytes>
char* part_of(char* memory, unsigned rank) {
    return memory + rank * bytes;
}
template <int bytes>
Remote in_block(const void* place, unsigned own, unsigned rank) {
    return {const_cast<char*>(static_cast<const char*>(place)) + (int(rank) - int(own)) * bytes};
}
template <bool in_order>
void cluster_arrive() {}
inline void cluster_wait() { __syncthreads(); }
template <bool counted, class Vector>
void put(Remote there, Vector v, Remote) {
    *reinterpret_cast<Vector*>(there.address) = v;
}

#endif
