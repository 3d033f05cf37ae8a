// Blocks that work on one panel together: a thread-block cluster, which needs sm_90 (PTX ISA, "Cluster of CTAs", mapa,
// barrier.cluster), or a single block, which any device has.
// On a host that runs blocks one at a time, a cluster of B blocks is one block of B * blockDim threads: shared memory is
// cut into B parts, and every block barrier is one of the cluster.
#pragma once

#ifdef __CUDACC__

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ < 900  // the name of the attribute is refused already
#define CLUSTER_KERNEL(B, threads) __global__ void __launch_bounds__(threads, 1)
#else
#define CLUSTER_KERNEL(B, threads) __global__ void __cluster_dims__(B, 1, 1) __launch_bounds__(threads, 1)
#endif

__device__ __forceinline__ void cluster_arrive() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
__device__ __forceinline__ void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }

#else

#define CLUSTER_KERNEL(B, threads) __global__ void

inline void cluster_arrive() {}
inline void cluster_wait() { __syncthreads(); }

#endif

// This thread's place among B blocks of `threads` threads that have `bytes` of shared memory each.
template <int B, int threads, int bytes>
struct Team {
    int thread, rank;  // in the block; of the block
    char* memory;      // of the block

    __device__ __forceinline__ explicit Team(void* shared) {
#ifdef __CUDACC__
        thread = threadIdx.x;
        rank = 0;
        if constexpr (B > 1) asm("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
        memory = static_cast<char*>(shared);
#else
        thread = threadIdx.x % threads;
        rank = threadIdx.x / threads;
        memory = static_cast<char*>(shared) + rank * bytes;
#endif
    }

    // What stands at `place` in this block, in another block.
    template <class T>
    __device__ __forceinline__ T* in_block(T* place, int other) const {
        if constexpr (B == 1) {
            return place;
        } else {
#ifdef __CUDACC__
            T* there;
            asm("mapa.u64 %0, %1, %2;" : "=l"(there) : "l"(place), "r"(other));
            return there;
#else
            return reinterpret_cast<T*>(reinterpret_cast<char*>(place) + (other - rank) * bytes);
#endif
        }
    }
};
