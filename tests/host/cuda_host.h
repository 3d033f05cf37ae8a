// The words of CUDA C++ that the kernels use, for a host compiler; included before the kernel's first line.
//
// Threads of a block are fibres that run one at a time and change only at barriers and shuffles, so a
// missing barrier, or warps in each other's memory, show as a wrong answer in some order of running them.
// Shared memory is filled with NaN before each block. Lanes that a shuffle names but that never come read as NaN.
// __CUDA_ARCH__ is not defined: a kernel's fallback for older devices is what runs here.
#pragma once
#include "cuda_atomics.h"
#include "cuda_math.h"
#include "cuda_types.h"
#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#ifndef __shared__  // the build under AddressSanitizer prefers plain statics, which have red zones
#define __shared__ static thread_local
#endif
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __cluster_dims__(...)
#define __grid_constant__
#define __align__(bytes) alignas(bytes)

#define threadIdx (*cuda_host::thread_index)
#define blockIdx (cuda_host::block_index)
#define blockDim (cuda_host::block_size)
#define gridDim (cuda_host::grid_size)
constexpr int warpSize = 32;

#define __syncthreads() cuda_host::block_barrier(__LINE__)

// Of what exchanges registers and touches no memory of a kernel: fast in the checked build too.
#define CUDA_HOST_REGISTERS __attribute__((no_sanitize("thread"), optimize("O2")))

namespace cuda_host {

template <class T>
CUDA_HOST_REGISTERS T shuffle(unsigned mask, T value, int source, int line) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = exchange(mask, bits, source, line);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

// The lane that a shuffle reads, by the rules of the CUDA C++ Programming Guide (warp shuffle functions).
CUDA_HOST_REGISTERS inline int indexed(int source, int width) { return (lane() & ~(width - 1)) + (source & (width - 1)); }
CUDA_HOST_REGISTERS inline int up(int delta, int width) { return (lane() & (width - 1)) < delta ? lane() : lane() - delta; }
CUDA_HOST_REGISTERS inline int down(int delta, int width) {
    return (lane() & (width - 1)) + delta >= width ? lane() : lane() + delta;
}
CUDA_HOST_REGISTERS inline int crossed(int bits, int width) {
    const int source = lane() ^ bits;
    return source >= (lane() & ~(width - 1)) + width ? lane() : source;
}

}  // namespace cuda_host

// The line of the call is part of a barrier's identity: threads that meet must have come to the same one.
CUDA_HOST_REGISTERS inline int __syncthreads_count(int predicate, int line = __builtin_LINE()) {
    return cuda_host::block_count(predicate != 0, line);
}
CUDA_HOST_REGISTERS inline int __syncthreads_or(int predicate, int line = __builtin_LINE()) {
    return cuda_host::block_count(predicate != 0, line) != 0;
}
CUDA_HOST_REGISTERS inline int __syncthreads_and(int predicate, int line = __builtin_LINE()) {
    return cuda_host::block_count(predicate == 0, line) == 0;
}
CUDA_HOST_REGISTERS inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    cuda_host::warp_barrier(mask, line);
}
CUDA_HOST_REGISTERS inline unsigned __ballot_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return cuda_host::ballot(mask, predicate != 0, line);
}
CUDA_HOST_REGISTERS inline int __any_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return cuda_host::ballot(mask, predicate != 0, line) != 0;
}
CUDA_HOST_REGISTERS inline int __all_sync(unsigned mask, int predicate, int line = __builtin_LINE()) {
    return cuda_host::ballot(mask, predicate == 0, line) == 0;
}
template <class T>
CUDA_HOST_REGISTERS T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::indexed(source, width), line);
}
template <class T>
CUDA_HOST_REGISTERS T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::up(int(delta), width), line);
}
template <class T>
CUDA_HOST_REGISTERS T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::down(int(delta), width), line);
}
template <class T>
CUDA_HOST_REGISTERS T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::crossed(bits, width), line);
}

// Barriers of shared memory that count arrivals; a test of a phase is answered when it has ended.
using __mbarrier_t = unsigned long long;
static_assert(sizeof(__mbarrier_t) == sizeof(std::uint64_t));
CUDA_HOST_REGISTERS inline void __mbarrier_init(__mbarrier_t* barrier, unsigned arrivals, int line = __builtin_LINE()) {
    cuda_host::counted_make(reinterpret_cast<std::uint64_t*>(barrier), arrivals, line);
}
CUDA_HOST_REGISTERS inline void __mbarrier_arrive(__mbarrier_t* barrier, int line = __builtin_LINE()) {
    cuda_host::counted_arrive(reinterpret_cast<std::uint64_t*>(barrier), line);
}
CUDA_HOST_REGISTERS inline bool __mbarrier_test_wait_parity(__mbarrier_t* barrier, bool parity,
                                                            int line = __builtin_LINE()) {
    cuda_host::counted_wait(reinterpret_cast<std::uint64_t*>(barrier), parity, line);
    return true;
}
inline void __trap(int line = __builtin_LINE()) { cuda_host::fail("__trap()", line); }

// Loads and stores with a cache hint.
#define CUDA_HOST_LOAD(name)     \
    template <class T>           \
    T name(const T* address) {   \
        return *address;         \
    }
#define CUDA_HOST_STORE(name)            \
    template <class T>                   \
    void name(T* address, T value) {     \
        *address = value;                \
    }
CUDA_HOST_LOAD(__ldg)
CUDA_HOST_LOAD(__ldca)
CUDA_HOST_LOAD(__ldcg)
CUDA_HOST_LOAD(__ldcs)
CUDA_HOST_LOAD(__ldcv)
CUDA_HOST_LOAD(__ldlu)
CUDA_HOST_STORE(__stcg)
CUDA_HOST_STORE(__stcs)
CUDA_HOST_STORE(__stwb)
CUDA_HOST_STORE(__stwt)
