// The words of CUDA C++ that the kernels use, for a host compiler; included before the kernel's first line.
//
// Threads of a block are fibres that run one at a time and change only at barriers and shuffles, so a
// missing barrier, or warps in each other's memory, show as a wrong answer in some order of running them.
// Shared memory is filled with NaN before each block. Lanes that a shuffle names but that never come read as NaN.
#pragma once
#include <cmath>
#include <cstring>

#include "runtime.h"

#define __global__
#define __device__
#define __host__
#define __constant__ static
#ifndef __shared__  // a sanitizer build may prefer plain statics, which have red zones
#define __shared__ static thread_local
#endif
#define __forceinline__ inline __attribute__((always_inline))
#define __noinline__ __attribute__((noinline))
#define __launch_bounds__(...)
#define __align__(bytes) alignas(bytes)

#define threadIdx (*cuda_host::thread_index)
#define blockIdx (cuda_host::block_index)
#define blockDim (cuda_host::block_size)
#define gridDim (cuda_host::grid_size)
constexpr int warpSize = 32;

struct alignas(8) float2 {
    float x, y;
};
struct alignas(16) float4 {
    float x, y, z, w;
};
struct alignas(8) int2 {
    int x, y;
};
struct alignas(16) int4 {
    int x, y, z, w;
};
inline float2 make_float2(float x, float y) { return {x, y}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }

#define __syncthreads() cuda_host::block_barrier(__LINE__)

namespace cuda_host {

template <class T>
T shuffle(unsigned mask, T value, int source, int line) {
    static_assert(sizeof(T) == 4 || sizeof(T) == 8, "shuffles move 4 or 8 bytes");
    std::uint64_t bits = 0;
    std::memcpy(&bits, &value, sizeof(T));
    bits = exchange(mask, bits, source, line);
    std::memcpy(&value, &bits, sizeof(T));
    return value;
}

// The lane that a shuffle reads, by the rules of the CUDA C++ Programming Guide (warp shuffle functions).
inline int indexed(int source, int width) { return (lane() & ~(width - 1)) + (source & (width - 1)); }
inline int up(int delta, int width) { return (lane() & (width - 1)) < delta ? lane() : lane() - delta; }
inline int down(int delta, int width) {
    return (lane() & (width - 1)) + delta >= width ? lane() : lane() + delta;
}
inline int crossed(int bits, int width) {
    const int source = lane() ^ bits;
    return source >= (lane() & ~(width - 1)) + width ? lane() : source;
}

}  // namespace cuda_host

// The line of the call is part of a barrier's identity: threads that meet must have come to the same one.
inline void __syncwarp(unsigned mask = 0xffffffffu, int line = __builtin_LINE()) {
    cuda_host::warp_barrier(mask, line);
}
template <class T>
T __shfl_sync(unsigned mask, T value, int source, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::indexed(source, width), line);
}
template <class T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::up(int(delta), width), line);
}
template <class T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::down(int(delta), width), line);
}
template <class T>
T __shfl_xor_sync(unsigned mask, T value, int bits, int width = 32, int line = __builtin_LINE()) {
    return cuda_host::shuffle(mask, value, cuda_host::crossed(bits, width), line);
}

template <class T>
T __ldg(const T* address) {
    return *address;
}
template <class T>
T __ldcs(const T* address) {
    return *address;
}
template <class T>
void __stcs(T* address, T value) {
    *address = value;
}

inline float __fdividef(float x, float y) { return x / y; }
inline float __frcp_rn(float x) { return 1.0f / x; }
inline float __fmaf_rn(float x, float y, float z) { return std::fma(x, y, z); }
inline float __sinf(float x) { return std::sin(x); }
inline float __cosf(float x) { return std::cos(x); }
inline void __sincosf(float x, float* sine, float* cosine) { *sine = std::sin(x), *cosine = std::cos(x); }
inline float rsqrtf(float x) { return 1.0f / std::sqrt(x); }

inline void sincospi(double x, double* sine, double* cosine) {
    const double turns = std::remainder(x, 2.0);  // exact, so that large arguments lose nothing
    *sine = std::sin(M_PI * turns);
    *cosine = std::cos(M_PI * turns);
}
inline void sincospif(float x, float* sine, float* cosine) {
    double s, c;
    sincospi(x, &s, &c);
    *sine = float(s);
    *cosine = float(c);
}
inline float sinpif(float x) {
    float s, c;
    return sincospif(x, &s, &c), s;
}
inline float cospif(float x) {
    float s, c;
    return sincospif(x, &s, &c), c;
}

inline unsigned __brev(unsigned x) {
    unsigned reversed = 0;
    for (int bit = 0; bit < 32; ++bit) reversed |= (x >> bit & 1u) << (31 - bit);
    return reversed;
}
inline int __clz(int x) { return x ? __builtin_clz(unsigned(x)) : 32; }
inline int __ffs(int x) { return __builtin_ffs(x); }
inline int __popc(unsigned x) { return __builtin_popcount(x); }

template <class T>
constexpr T min(T a, T b) {
    return b < a ? b : a;
}
template <class T>
constexpr T max(T a, T b) {
    return a < b ? b : a;
}
