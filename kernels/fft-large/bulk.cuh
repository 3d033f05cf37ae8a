// Bulk copies from device memory to shared memory, and the barriers in shared memory that count their bytes
// (PTX ISA, "Data Movement and Conversion Instructions: Bulk copy" and "mbarrier"). They need sm_90.
// Elsewhere the thread that asks copies by itself, and waiting is a block barrier.
#pragma once

#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900

__device__ __forceinline__ unsigned shared_address(const void* place) {
    return unsigned(__cvta_generic_to_shared(place));
}

// One thread makes the barrier ready for phases of one arrival each; the others see it after they met.
__device__ __forceinline__ void make_barrier(unsigned long long* barrier) {
    asm volatile("mbarrier.init.shared::cta.b64 [%0], 1;" ::"r"(shared_address(barrier)) : "memory");
    asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
}

// The one arrival of a phase, which ends when `bytes` have come too
__device__ __forceinline__ void expect(unsigned long long* barrier, unsigned bytes) {
    asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(barrier)), "r"(bytes)
                 : "memory");
}

// Until the phase of this parity has ended; what came with it, from any block of the cluster, can be read then
__device__ __forceinline__ void await(unsigned long long* barrier, unsigned parity) {
    unsigned ended = 0;
    while (!ended) {
        asm volatile(
            "{\n.reg .pred ended;\n"
            "mbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 ended, [%1], %2;\n"
            "selp.u32 %0, 1, 0, ended;\n}"
            : "=r"(ended)
            : "r"(shared_address(barrier)), "r"(parity)
            : "memory");
    }
}

// Called by one thread, after a block barrier behind the last reads of `to`. Both addresses and `bytes` are multiples
// of 16.
__device__ __forceinline__ void fetch(void* to, const void* from, unsigned bytes, unsigned long long* barrier) {
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");
    expect(barrier, bytes);
    asm volatile("cp.async.bulk.shared::cluster.global.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
                     shared_address(to)),
                 "l"(from), "r"(bytes), "r"(shared_address(barrier))
                 : "memory");
}

#else

__device__ __forceinline__ void make_barrier(unsigned long long*) {}
__device__ __forceinline__ void expect(unsigned long long*, unsigned) {}
__device__ __forceinline__ void await(unsigned long long*, unsigned) { __syncthreads(); }
__device__ __forceinline__ void fetch(void* to, const void* from, unsigned bytes, unsigned long long*) {
    for (unsigned i = 0; i < bytes / sizeof(float2); ++i) {
        static_cast<float2*>(to)[i] = static_cast<const float2*>(from)[i];
    }
}

#endif
