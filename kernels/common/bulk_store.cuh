// Shared memory to global memory by the copy engine, while the threads are done.
#pragma once
#include "threads.cuh"

// The lanes of a warp have written `bytes` of shared memory, a multiple of 16, that go to `to`; both are aligned to 16
// bytes. The first lane returns when the shared memory has been read; the others must meet it before they write there
// again.
__device__ __forceinline__ void bulk_store(void* to, const void* from, int bytes, int lane) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async.shared::cta;" ::: "memory");  // what this lane wrote, for the copy engine
    __syncwarp();
    if (lane == 0 && bytes > 0) {
        const unsigned source = unsigned(__cvta_generic_to_shared(from));
        asm volatile("cp.async.bulk.global.shared::cta.bulk_group [%0], [%1], %2;" ::"l"(to), "r"(source), "r"(bytes)
                     : "memory");
        asm volatile("cp.async.bulk.commit_group;" ::: "memory");
        asm volatile("cp.async.bulk.wait_group.read 0;" ::: "memory");
    }
#else  // without such an engine the lanes copy themselves
    __syncwarp();
    for (int i = lane; i < bytes / 16; i += kWarp) static_cast<float4*>(to)[i] = static_cast<const float4*>(from)[i];
#endif
}
