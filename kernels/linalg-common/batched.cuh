// Words for kernels that work on many small dense problems at once. Matrices are column-major, one behind the other.
#pragma once
#include "threads.cuh"
#include "vectors.cuh"

__device__ constexpr int round_up(int n, int step) { return (n + step - 1) / step * step; }

__device__ constexpr int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }

// Numbers that one access of 16 bytes holds.
template <class T>
constexpr int kWide = 16 / sizeof(T);

// Numbers of one access to columns of n numbers that follow each other without gaps.
template <class T>
__device__ constexpr int access_width(int n) {
    return common_divisor(n, kWide<T>);
}

// Threads that share a problem of `items` rows or columns, `each` a thread: a power of two of one warp, or whole warps.
__device__ constexpr int threads_for(int items, int each) {
    const int needed = (items + each - 1) / each;
    return needed <= kWarp ? next_pow2(needed) : round_up(needed, kWarp);
}

// Elements from one problem to the next in shared memory, so that those of a warp begin in different banks.
template <class T>
__device__ constexpr int pitch_for(int elements, int threads) {
    const int line = 128 / sizeof(T);
    return threads >= line ? elements : elements + ((threads - elements) % (2 * threads) + 2 * threads) % (2 * threads);
}

// E numbers at an aligned address, in accesses as wide as they can be.
template <int E, class T>
__device__ __forceinline__ void read(const T* from, T (&to)[E]) {
    constexpr int width = common_divisor(E, kWide<T>);
    load<E, width>(from, width, E, T(0), to);
}

template <int E, class T>
__device__ __forceinline__ void write(T* to, const T (&from)[E]) {
    constexpr int width = common_divisor(E, kWide<T>);
    store<E, width>(to, width, E, from);
}

// Calls act(e, pack) for every pack of `width` numbers of `count` numbers in device memory, several loads at a time;
// packs of which wanted(e) is false are left out. `count` and `from` are multiples of packs.
template <int width, int threads, class T, class Wanted, class Act>
__device__ __forceinline__ void for_packs(const T* from, int count, Wanted wanted, Act act) {
    constexpr int flying = 4;
    for (int start = threadIdx.x * width; start < count; start += flying * threads * width) {
        Pack<T, width> packs[flying];
#pragma unroll
        for (int f = 0; f < flying; ++f) {
            const int e = start + f * threads * width;
            if (e < count && wanted(e)) packs[f] = *reinterpret_cast<const Pack<T, width>*>(from + e);
        }
#pragma unroll
        for (int f = 0; f < flying; ++f) {
            const int e = start + f * threads * width;
            if (e < count && wanted(e)) act(e, packs[f]);
        }
    }
}
