// Complex transforms of rows of x, shape (batch, N), that fill a block: one pass over device memory. N is a product of
// small primes; the inverse is divided by N.
//
// A block holds a row in registers, P points a thread, and exchanges through shared memory (mixed_fft.cuh). Such a block
// leaves no room for many others whose loads would overlap with its arithmetic. With `ahead`, the grid is what fits on
// the device, a block walks over rows, and each thread copies its points of the next row to shared memory while the
// present one is transformed: no other thread reads them, so that copies need no barrier.
//
// Tunables: r first and largest radix, the other stages share what is left evenly; P; split, by which shared memory
// holds real parts and then imaginary parts; ahead; blocks that a multiprocessor is to hold at least.
#include "async_copy.cuh"
#include "mixed_fft.cuh"
#include "row_layout.cuh"

template <class Fft, bool ahead, bool inverse, int L, int blocks, int shared_bytes, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    whole_rows(const Complex<typename Fft::Real>* __restrict__ x, Complex<typename Fft::Real>* __restrict__ y,
               int batch, RowLayout<2, aligned, in_place> layout) {
    using T = typename Fft::Real;
    using Word = typename Fft::Word;
    constexpr int N = Fft::N, kept = ahead ? N : 0;
    static_assert(kept * sizeof(Complex<T>) + Fft::pitch * sizeof(Word) <= shared_bytes, "room for a row, and the next");
    static_assert(Fft::spare || L == Fft::G, "every thread has points");
    extern __shared__ double2 shared[];

    Complex<T>* const next = reinterpret_cast<Complex<T>*>(shared);
    Word* const room = reinterpret_cast<Word*>(next + kept);
    const bool works = !Fft::spare || threadIdx.x < Fft::G;
    const unsigned t = works ? threadIdx.x : kNoThread + threadIdx.x % Fft::G;
    const Complex<T>* const source = layout.source(x, y);
    const auto fetch = [&](int row) {
        const Complex<T>* const from = source + row * layout.pitch_of(0, 1LL * N);
        if (works) for_points<Fft, 0>(t, [&](int, unsigned o) { copy_async<sizeof(Complex<T>)>(next + o, from + o, true); });
        close_group();
    };

    int row = blockIdx.x;
    if (ahead) fetch(row);
    do {
        Complex<T> v[Fft::held(0)], w[Fft::held(Fft::last)];
        const Complex<T>* const from = ahead ? next : source + row * layout.pitch_of(0, 1LL * N);
        if (ahead) wait_groups<0>();
        if (works) for_points<Fft, 0>(t, [&](int k, unsigned o) { v[k] = swapped<inverse>(from[o]); });
        if (ahead && row + int(gridDim.x) < batch) fetch(row + gridDim.x);
        mixed_fft<Fft>(v, w, t, room, ahead);
        constexpr T scale = inverse ? T(1.0 / N) : T(1);
        Complex<T>* const to = y + row * layout.pitch_of(1, 1LL * N);
        if (works) for_points<Fft, Fft::last>(t, [&](int k, unsigned o) { to[o] = scaled(swapped<inverse>(w[k]), scale); });
        row += gridDim.x;
    } while (ahead && row < batch);
}
