// Copies from global to shared memory that go on while their threads work on something else.
#pragma once

// Puts a copy of 4, 8 or 16 bytes, aligned to as many, into the thread's open group; zeros where `exists` is false.
template <int bytes>
__device__ __forceinline__ void copy_async(void* to, const void* from, bool exists) {
    static_assert(bytes == 4 || bytes == 8 || bytes == 16, "what the hardware copies");
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    const unsigned place = unsigned(__cvta_generic_to_shared(to));
    const int given = exists ? bytes : 0;
    if constexpr (bytes == 16)
        asm volatile("cp.async.cg.shared.global.L2::256B [%0], [%1], 16, %2;"  // what follows is wanted soon
                     ::"r"(place), "l"(from), "r"(given)
                     : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2, %3;" ::"r"(place), "l"(from), "n"(bytes), "r"(given)
                     : "memory");
#else  // without such copies the thread waits
    struct alignas(bytes) Bytes {
        unsigned words[bytes / 4];
    };
    *static_cast<Bytes*>(to) = exists ? *static_cast<const Bytes*>(from) : Bytes{};
#endif
}

// Closes the thread's group, which may be empty.
__device__ __forceinline__ void close_group() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.commit_group;" ::: "memory");
#endif
}

// Waits for all of the thread's closed groups but the last `open`.
template <int open>
__device__ __forceinline__ void wait_groups() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_group %0;" ::"n"(open) : "memory");
#endif
}
