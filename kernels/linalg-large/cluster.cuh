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

// A place in shared memory that counts the bytes that blocks of a cluster send it (PTX ISA, "mbarrier", "st.async"): a
// block waits for what it gets, and for nothing else.
struct alignas(8) Mailbox {
    unsigned long long state;

    // By one thread, before cluster_arrive(); others use it behind cluster_wait().
    __device__ __forceinline__ void open() {
#ifdef __CUDACC__
        asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(address(this)) : "memory");
        asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
#endif
    }

    // By one thread: so many bytes will have come when the phase ends.
    __device__ __forceinline__ void expect(int bytes) {
#ifdef __CUDACC__
        asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(address(this)), "r"(bytes) : "memory");
#endif
    }

    // Sends 16 bytes to a place in the shared memory of another block, and to this mailbox there.
    template <class Team, class Word>
    __device__ __forceinline__ void send(const Team& team, const Word& word, Word* place, int other) {
        static_assert(sizeof(Word) == sizeof(float4), "the bytes of one message");
#ifdef __CUDACC__
        float4 value;
        memcpy(&value, &word, sizeof value);
        unsigned to, box;
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(to) : "r"(address(place)), "r"(other));
        asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(box) : "r"(address(this)), "r"(other));
        asm volatile("st.async.shared::cluster.mbarrier::complete_tx::bytes.v4.f32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(to),
                     "f"(value.x), "f"(value.y), "f"(value.z), "f"(value.w), "r"(box)
                     : "memory");
#else
        *team.in_block(place, other) = word;
#endif
    }

    // By all threads: until the phase has ended; phases are even and odd in turn.
    __device__ __forceinline__ void wait(int phase) {
#ifdef __CUDACC__
        unsigned ended = 0;
        while (!ended)
            asm volatile(
                "{.reg .pred p; mbarrier.try_wait.parity.shared::cta.b64 p, [%1], %2;"
                " selp.b32 %0, 1, 0, p;}"
                : "=r"(ended)
                : "r"(address(this)), "r"(phase % 2)
                : "memory");
#else
        __syncthreads();
#endif
    }

#ifdef __CUDACC__
    __device__ __forceinline__ static unsigned address(const void* place) {
        return static_cast<unsigned>(__cvta_generic_to_shared(place));
    }
#endif
};

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
