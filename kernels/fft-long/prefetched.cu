// Complex transforms of rows of x, shape (batch, N), that fill a multiprocessor: one pass over device memory. N is a
// product of small primes; the inverse is divided by N.
//
// A block holds a row in registers and leaves no room for many others whose loads would overlap with its arithmetic
// (fft-any). So a block that has its row asks for the row of a later one to come to the second-level cache.
#include "mixed_fft.cuh"
#include "row_layout.cuh"

// Has numbers brought to the second-level cache, by all L threads of a block; nobody waits for them
template <int count, int L, class T>
__device__ __forceinline__ void prefetch(const Complex<T>* row) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const unsigned long long begin = (reinterpret_cast<unsigned long long>(row) + 15) / 16 * 16;
    const unsigned bytes = (reinterpret_cast<unsigned long long>(row + count) - begin) / 16 * 16;
    if (threadIdx.x == 0) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(begin), "r"(bytes) : "memory");
#elif defined(__CUDA_ARCH__)
    constexpr int line = 128 / sizeof(Complex<T>);
    for (int o = threadIdx.x * line; o < count; o += L * line) asm volatile("prefetch.global.L2 [%0];" ::"l"(row + o));
#endif
}

// How many there are at most
__device__ __forceinline__ unsigned multiprocessors() {
    unsigned count = 1;
#if defined(__CUDA_ARCH__)
    asm("mov.u32 %0, %%nsmid;" : "=r"(count));
#endif
    return count;
}

template <class Fft, bool inverse, int L, int blocks, int shared_bytes, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    rows_prefetched(const Complex<typename Fft::Real>* __restrict__ x, Complex<typename Fft::Real>* __restrict__ y,
                    int batch, RowLayout<2, aligned, in_place> layout) {
    using T = typename Fft::Real;
    using Word = typename Fft::Word;
    constexpr int N = Fft::N;
    static_assert(Fft::pitch * sizeof(Word) <= shared_bytes, "room for a row");
    static_assert(Fft::spare || L == Fft::G, "every thread has points");
    extern __shared__ double2 shared[];

    const bool works = !Fft::spare || threadIdx.x < Fft::G;
    const unsigned t = works ? threadIdx.x : kNoThread + threadIdx.x % Fft::G;
    const long long pitch = layout.pitch_of(0, 1LL * N);
    const Complex<T>* const from = layout.source(x, y) + blockIdx.x * pitch;
    Complex<T> v[Fft::held(0)], w[Fft::held(Fft::last)];
    if (works) for_points<Fft, 0>(t, [&](int k, unsigned o) { v[k] = swapped<inverse>(from[o]); });
    const unsigned later = multiprocessors() * blocks;  // blocks that are there now
    if (blockIdx.x + later < batch) prefetch<N, L>(from + later * pitch);
    mixed_fft<Fft>(v, w, t, reinterpret_cast<Word*>(shared), false);
    if (works) {
        constexpr T scale = inverse ? T(1.0 / N) : T(1);
        Complex<T>* const to = y + blockIdx.x * layout.pitch_of(1, 1LL * N);
        for_points<Fft, Fft::last>(t, [&](int k, unsigned o) { to[o] = scaled(swapped<inverse>(w[k]), scale); });
    }
}
