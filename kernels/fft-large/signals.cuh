// Words between blocks that work on the same arrays at the same time (PTX ISA, "Memory Consistency Model"): sm_80.
// Elsewhere nobody waits, which is enough where blocks run one after another.
#pragma once

// Counts one more job at `counter`. Who waits for that count sees what this thread wrote, or saw at a block barrier
// that others had written.
__device__ __forceinline__ void announce(unsigned* counter) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("red.release.gpu.global.add.u32 [%0], 1;" ::"l"(counter) : "memory");
#else
    atomicAdd(counter, 1u);
#endif
}

// Whether `count` jobs were announced. If so, this thread sees what they wrote, and others do after a block barrier.
__device__ __forceinline__ bool announced(const unsigned* counter, unsigned count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    unsigned now;
    asm volatile("ld.acquire.gpu.global.u32 %0, [%1];" : "=r"(now) : "l"(counter) : "memory");
    return now >= count;
#else
    return atomicAdd(const_cast<unsigned*>(counter), 0u) >= count;
#endif
}

__device__ __forceinline__ void wait_for(const unsigned* counter, unsigned count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    while (!announced(counter, count)) __nanosleep(40);
#endif
}

// What this thread sees, bulk copies that it asks for see too.
__device__ __forceinline__ void show_to_copies() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    asm volatile("fence.proxy.async;" ::: "memory");
#endif
}

constexpr int kLineBytes = 128;

// Forgets what stands in a line, so that it is never written to device memory. To the memory model that is a write, of
// any value; elsewhere it writes one that shows.
__device__ __forceinline__ void discard_line(void* line) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("discard.global.L2 [%0], 128;" ::"l"(line) : "memory");
#else
    for (int i = 0; i < kLineBytes / 4; ++i) static_cast<unsigned*>(line)[i] = ~0u;
#endif
}
