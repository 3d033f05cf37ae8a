// Complex transforms of the rows of x, shape (batch, N), N any number; the inverse is divided by N.
//
// A product of small primes is transformed by stages of those radices. Of any other length a large prime, or all of
// it, is convolved, by two such transforms of M points (any_fft.cuh), all of it in one block.
//
// Tunables: way, by which a large prime is convolved; r first and largest radix, the other stages share what is left
// evenly; P points per thread, so that G = M / P threads share a problem; L threads per block; split, by which shared
// memory holds real parts and then imaginary parts; tile, by which all rows of a block come and go through shared
// memory, as lanes side by side read parts of many short rows; blocks that a multiprocessor is to hold at least, which
// bounds the registers: 0 leaves them to the compiler.
#include "any_fft.cuh"
#include "row_layout.cuh"

template <class Core, bool inverse, bool tiled, int L, int blocks, int shared_bytes, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    fft_any(const Complex<typename Core::Real>* __restrict__ x, Complex<typename Core::Real>* __restrict__ y,
            const Complex<typename Core::Real>* __restrict__ table, int batch, RowLayout<2, aligned, in_place> layout) {
    using T = typename Core::Real;
    using Word = typename Core::Word;
    constexpr int N = Core::N, problems = L / Core::G;
    constexpr bool tile = tiled && aligned == 0;  // rows that lie apart are read and written directly
    static_assert(shared_bytes == 0 || problems * Core::pitch * sizeof(Word) <= shared_bytes, "room for all problems");
    static_assert(!tile || problems * N * sizeof(Complex<T>) <= shared_bytes, "room for all rows");
    static_assert(Core::has_spare || L % Core::G == 0, "every thread has a problem");
    extern __shared__ double2 shared[];

    const auto [place, t] = seat_of<Core, problems>(threadIdx.x);
    const int first = blockIdx.x * problems, problem = first + place, left = batch - first;
    const int valid = (left < problems ? left : problems) * N;
    const bool exists = problem < batch;  // threads past the end solve another problem again and keep quiet
    Complex<T>* const rows = reinterpret_cast<Complex<T>*>(shared);
    const Complex<T>* const source = layout.source(x, y);
    const Complex<T>* from = source + (exists ? problem : batch - 1) * layout.pitch_of(0, 1LL * N);
    Complex<T>* to = y + problem * layout.pitch_of(1, 1LL * N);
    if constexpr (tile) {
        copy_tile<L, problems * N>(rows, source + (long long)first * N, valid);
        __syncthreads();
        from = rows + (exists ? place : 0) * N;
        to = rows + place * N;
    }

    Complex<T> v[Core::inputs], w[Core::outputs];
    Core::for_inputs(t, [&](int k, unsigned o) {
        v[k] = !Core::is_padded || o < N ? swapped<inverse>(from[o]) : Complex<T>{0, 0};
    });
    if constexpr (tile) __syncthreads();
    Core::run(v, w, t, reinterpret_cast<Word*>(shared) + place * Core::pitch, table);
    if constexpr (tile) __syncthreads();
    if (tile || exists) {
        constexpr T scale = inverse ? T(1.0 / N) : T(1);
        Core::for_outputs(t, [&](int k, unsigned o) {
            if (!Core::is_padded || o < N) to[o] = scaled(swapped<inverse>(w[k]), scale);
        });
    }
    if constexpr (tile) {
        __syncthreads();
        copy_tile<L, problems * N>(y + (long long)first * N, rows, valid);
    }
}
