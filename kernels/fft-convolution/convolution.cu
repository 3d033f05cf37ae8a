// Cyclic convolutions of the complex rows of x, shape (batch, N), with one filter: forward transform, product with the
// filter's spectrum, inverse transform, all of it in one block. Out of place, N a product of primes up to 31.
//
// A worked example of kernels around a transform: the numbers of a row never leave the block, and the transform back
// begins with the frequencies where the forward one has left them, so that no exchange is spent on their order.
//
// Tunables: as of fft-any.
#include "mixed_fft.cuh"

template <class Fft, int L, int blocks, int shared_bytes>
__global__ void __launch_bounds__(L, blocks)
    fft_convolution(const Complex<typename Fft::Real>* __restrict__ x,
                    const Complex<typename Fft::Real>* __restrict__ spectrum, Complex<typename Fft::Real>* __restrict__ y,
                    int batch) {
    using T = typename Fft::Real;
    using Word = typename Fft::Word;
    using Back = MixedFft<T, Fft::N, Fft::G, Reversed<typename Fft::Stages>, Fft::split, Fft::spare>;
    constexpr int N = Fft::N, problems = L / Fft::G, pitch = Fft::pitch > Back::pitch ? Fft::pitch : Back::pitch;
    static_assert(Fft::last == 0 || problems * pitch * sizeof(Word) <= shared_bytes, "room for all problems");
    static_assert(Fft::spare || L % Fft::G == 0, "every thread has a problem");
    extern __shared__ double2 shared[];

    const unsigned place = threadIdx.x / Fft::G;
    const bool works = !Fft::spare || place < problems;
    const unsigned t = works ? threadIdx.x % Fft::G : kNoThread;
    const int problem = blockIdx.x * problems + place;
    const bool exists = problem < batch;  // threads past the end solve another problem again and keep quiet
    const Complex<T>* const from = x + (long long)(exists ? problem : batch - 1) * N;
    Complex<T>* const to = y + (long long)problem * N;
    Word* const room = reinterpret_cast<Word*>(shared) + (works ? place : 0) * pitch;

    Complex<T> v[Fft::held(0)], frequencies[Fft::held(Fft::last)], w[Fft::held(0)];
    for_points<Fft, 0>(t, [&](int k, unsigned o) { v[k] = from[o]; });
    mixed_fft<Fft>(v, frequencies, t, room, false);
    for_points<Fft, Fft::last>(
        t, [&](int k, unsigned o) { frequencies[k] = swapped<true>(frequencies[k] * spectrum[o]); });
    mixed_fft<Back>(frequencies, w, t, room, true);
    if (!exists) return;
    for_points<Fft, 0>(t, [&](int k, unsigned o) { to[o] = scaled(swapped<true>(w[k]), T(1.0 / N)); });
}
