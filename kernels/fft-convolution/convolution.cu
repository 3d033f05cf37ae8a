// Cyclic convolutions of the complex rows of x, shape (batch, N), with one filter: forward transform, product with the
// filter's spectrum, inverse transform, all of it in one block. Out of place, N any number.
//
// An example of kernels around a transform: the numbers of a row never leave the block, and the transform back begins
// with the frequencies where the forward one has left them, so that no exchange is spent on their order.
//
// Tunables: as of fft-any.
#include "any_fft.cuh"

template <class Core, int L, int blocks, int shared_bytes>
__global__ void __launch_bounds__(L, blocks)
    fft_convolution(const Complex<typename Core::Real>* __restrict__ x,
                    const Complex<typename Core::Real>* __restrict__ spectrum,
                    Complex<typename Core::Real>* __restrict__ y,
                    const Complex<typename Core::Real>* __restrict__ table, int batch) {
    using T = typename Core::Real;
    using Word = typename Core::Word;
    using Back = typename Core::Next;
    constexpr int N = Core::N, problems = L / Core::G, pitch = Core::pitch > Back::pitch ? Core::pitch : Back::pitch;
    static_assert(shared_bytes == 0 || problems * pitch * sizeof(Word) <= shared_bytes, "room for all problems");
    static_assert(Core::has_spare || L % Core::G == 0, "every thread has a problem");
    extern __shared__ double2 shared[];

    const auto [place, t] = seat_of<Core, problems>(threadIdx.x);
    const int problem = blockIdx.x * problems + place;
    const bool exists = problem < batch;  // threads past the end solve another problem again and keep quiet
    const Complex<T>* const from = x + (long long)(exists ? problem : batch - 1) * N;
    Complex<T>* const to = y + (long long)problem * N;
    Word* const room = reinterpret_cast<Word*>(shared) + place * pitch;

    Complex<T> v[Core::inputs], frequencies[Core::outputs], w[Back::outputs];
    Core::for_inputs(t, [&](int k, unsigned o) { v[k] = !Core::is_padded || o < N ? from[o] : Complex<T>{0, 0}; });
    Core::run(v, frequencies, t, room, table);
    Core::for_outputs(t, [&](int k, unsigned o) {
        const bool known = !Core::is_padded || o < N;
        frequencies[k] = known ? swapped<true>(frequencies[k] * spectrum[o]) : Complex<T>{0, 0};
    });
    // Not t as the compiler sees it: else it would keep all twiddle factors for the way back
    Back::run(frequencies, w, t + (batch < 0), room, table, true);
    if (!exists) return;
    Back::for_outputs(t, [&](int k, unsigned o) {
        if (!Core::is_padded || o < N) to[o] = scaled(swapped<true>(w[k]), T(1.0 / N));
    });
}
