// Barriers in shared memory that count arrivals and bytes, and the copies whose bytes they count (PTX ISA, "Parallel
// Synchronization and Communication Instructions: mbarrier" and "Data Movement and Conversion Instructions: Bulk copy").
// They need sm_90. Phases of a barrier have the parities 0, 1, 0, ...; a thread waits for the end of each in turn.
#pragma once

using Mbarrier = unsigned long long;

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ unsigned shared_place(const void* place) { return unsigned(__cvta_generic_to_shared(place)); }

// A phase ends with so many arrivals, and the bytes they expect. The makers then call mbarrier_made, and meet the others.
__device__ __forceinline__ void mbarrier_make(Mbarrier* barrier, unsigned arrivals) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_place(barrier)), "r"(arrivals) : "memory");
}

__device__ __forceinline__ void mbarrier_made() {
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier) {
    asm volatile("mbarrier.arrive.shared::cta.b64 _, [%0];" ::"r"(shared_place(barrier)) : "memory");
}

// Until the phase of this parity has ended; what was written before its arrivals, or copied, can be read then.
__device__ __forceinline__ void mbarrier_wait(Mbarrier* barrier, unsigned parity) {
    unsigned ended = 0;
    while (!ended) {
        asm volatile(
            "{\n.reg .pred ended;\n"
            "mbarrier.try_wait.parity.shared::cta.b64 ended, [%1], %2;\n"
            "selp.u32 %0, 1, 0, ended;\n}"
            : "=r"(ended)
            : "r"(shared_place(barrier)), "r"(parity)
            : "memory");
    }
}

// Arrives, and expects that many bytes in this phase
__device__ __forceinline__ void mbarrier_expect(Mbarrier* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_place(barrier)), "r"(bytes)
                 : "memory");
}

// Before copies into shared memory that this thread has read, or knows to have been read
__device__ __forceinline__ void before_bulk_loads() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }

// Copies from global to shared memory; both addresses and `bytes` are multiples of 16.
__device__ __forceinline__ void bulk_load(void* to, const void* from, unsigned bytes, Mbarrier* barrier) {
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_place(to)),
                 "l"(from), "r"(bytes), "r"(shared_place(barrier))
                 : "memory");
}

#elif !defined(__CUDA_ARCH__)  // the primitives of the CUDA C++ Programming Guide; who asks for a copy makes it

__device__ __forceinline__ void mbarrier_make(Mbarrier* barrier, unsigned arrivals) { __mbarrier_init(barrier, arrivals); }
__device__ __forceinline__ void mbarrier_made() {}
__device__ __forceinline__ void mbarrier_arrive(Mbarrier* barrier) { __mbarrier_arrive(barrier); }
__device__ __forceinline__ void mbarrier_wait(Mbarrier* barrier, unsigned parity) {
    while (!__mbarrier_test_wait_parity(barrier, parity)) {
    }
}
__device__ __forceinline__ void mbarrier_expect(Mbarrier* barrier, unsigned) { __mbarrier_arrive(barrier); }
__device__ __forceinline__ void before_bulk_loads() {}
__device__ __forceinline__ void bulk_load(void* to, const void* from, unsigned bytes, Mbarrier*) {
    for (unsigned i = 0; i < bytes / sizeof(unsigned); ++i)
        static_cast<unsigned*>(to)[i] = static_cast<const unsigned*>(from)[i];
}

#endif

#if !defined(__CUDA_ARCH__) || __CUDA_ARCH__ >= 900

// A warp whose lanes have met arrives for all of them. A race checker does not see that the meeting orders what the other
// lanes did: for it, LANES_ARRIVE makes every lane arrive.
#if defined(LANES_ARRIVE)
constexpr unsigned kWarpArrivals = 32;
#else
constexpr unsigned kWarpArrivals = 1;
#endif

__device__ __forceinline__ void mbarrier_arrive_warp(Mbarrier* barrier, int lane) {
    if (kWarpArrivals > 1 || lane == 0) mbarrier_arrive(barrier);
}

#endif
