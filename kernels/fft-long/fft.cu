// Complex transforms of long rows of x, shape (batch, N), N any number; the inverse is divided by N.
//
// Two passes over device memory where N = N1 N2 is a product of small primes: columns of N1 points from x to `between`,
// rows of N2 points from there to y (long_fft.cuh). A large prime factor may be convolved in the columns, and another
// one in the rows (any_fft.cuh). Any other length by Bluestein's algorithm, as a convolution of M = N1 N2 >= 2 N - 1
// points in three passes: columns of x times a chirp; rows, their product with the spectrum of the chirp, and the same
// rows back; columns back, times the chirp. Nothing is put in order in between: the spectrum lies as the second pass has
// its frequencies, and the third pass undoes the first.
//
// A pass has tiles: C neighbouring columns, or C neighbouring rows, of G threads each. Tunables: skew makes rows longer
// and columns shorter. For columns and for rows: first and largest radix r, P points per thread, C, and split, by which
// shared memory holds real parts and then imaginary parts. bounded: blocks that a multiprocessor is to hold at least,
// which bounds the registers, follow from those that the numbers of a thread need.
#include "any_fft.cuh"
#include "long_fft.cuh"
#include "row_layout.cuh"
#include "row_numbers.cuh"

// Columns 0 to `columns` - 1 of a matrix of Core::N rows and W columns. chirped: they are multiplied by `table` first,
// which else is that of the columns. Row: see row_numbers.cuh.
template <class Core, class Row, int W, int columns, int C, bool chirped, int L, int blocks, int shared_bytes,
          int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    long_columns(const typename Row::Input* __restrict__ x, typename Row::Output* y,
                 Complex<typename Core::Real>* __restrict__ between,
                 const Complex<typename Core::Real>* __restrict__ table, RowLayout<2, aligned, in_place> layout) {
    using T = typename Core::Real;
    using Word = typename Core::Word;
    constexpr int H = Core::N, pitch = row_pitch<T>(columns);
    constexpr bool all = Row::points == H * W && !Core::is_padded;  // of a column are given
    static_assert(shared_bytes == 0 || Core::pitch * C * sizeof(Word) <= shared_bytes, "room for a tile");
    static_assert(Core::has_spare || L == Core::G * C, "every thread has a column");
    extern __shared__ double2 shared[];

    const auto column = Column<typename Core::Fft, columns, C>::of_this_thread();
    const typename Row::Input* const from =
        Row::source(layout, x, y) + column.problem * layout.pitch_of(0, 1LL * Row::given);
    Complex<T> v[Core::inputs], w[Core::outputs];
    Core::for_inputs(column.t, [&](int k, unsigned o) {
        const unsigned n = o * W + column.at;
        const bool lower = Core::input_below(k, o, (H + 1) / 2);
        v[k] = all || n < Row::points ? Row::load(from, n, lower) : Complex<T>{0, 0};
        if (chirped && n < Row::points) v[k] = v[k] * table[n];
    });
    Core::run(v, w, column.t, reinterpret_cast<Word*>(shared) + threadIdx.x % C, table);
    if (!column.exists) return;
    twiddle<Side<Core, false>, W>(w, column.t, column.at);
    Complex<T>* const to = between + column.problem * (1LL * H * pitch) + column.at;
    Core::for_outputs(column.t, [&](int k, unsigned o) {
        if (!Core::is_padded || o < H) to[o * pitch] = w[k];
    });
}

// Rows of a matrix of H rows and Core::N columns; frequency l of row k is frequency k + H l of the whole
template <class Core, class Row, int H, int C, int L, int blocks, int shared_bytes, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    long_rows(const Complex<typename Core::Real>* __restrict__ between, typename Row::Output* __restrict__ y,
              const Complex<typename Core::Real>* __restrict__ table, RowLayout<2, aligned, in_place> layout) {
    using T = typename Core::Real;
    using Rows = RowsOf<Core, C>;
    constexpr int W = Core::N, pitch = row_pitch<T>(W);
    constexpr unsigned tiles = (H + C - 1) / C;
    static_assert(shared_bytes == 0 || Rows::bytes <= shared_bytes, "room for a tile");
    static_assert(Core::has_spare || L == Core::G * C, "every thread has a row");

    const unsigned problem = blockIdx.x / tiles, first = blockIdx.x % tiles * C;
    const Lane loads = Rows::loaded(threadIdx.x), stores = Rows::stored(threadIdx.x);
    const unsigned row = H % C == 0 || first + loads.row < H ? first + loads.row : H - 1;
    const Complex<T>* const from = between + problem * (1LL * H * pitch) + row * pitch;
    Complex<T> v[Core::inputs], w[Core::outputs];
    Core::for_inputs(loads.t, [&](int k, unsigned o) {
        v[k] = !Core::is_padded || o < W ? from[o] : Complex<T>{0, 0};
    });
    transform_rows<Rows>(v, w, table);
    if (H % C != 0 && first + stores.row >= H) return;
    typename Row::Output* const to = y + problem * layout.pitch_of(1, 1LL * Row::made);
    Core::for_outputs(stores.t, [&](int k, unsigned o) {
        const unsigned n = o * H + first + stores.row;
        if ((Row::results == H * W && !Core::is_padded) || n < Row::results) Row::store(to, n, w[k]);
    });
}

// ---- Bluestein's algorithm -----------------------------------------------------------------------------------------

// Rows of matrices of H rows, C of them in a block: their transforms times the spectrum, and back, in place. Behind it,
// real and imaginary parts have changed places. tabulates: their transforms become the spectrum.
template <class Fft, int H, int C, bool tabulates, int L, int blocks, int shared_bytes>
__global__ void __launch_bounds__(L, blocks)
    convolve_rows(Complex<typename Fft::Real>* __restrict__ between,
                  Complex<typename Fft::Real>* __restrict__ spectrum) {
    using T = typename Fft::Real;
    using Word = typename Fft::Word;
    // Begins where Fft ends, and ends where it begins
    using Back = MixedFft<T, Fft::N, Fft::G, Reversed<typename Fft::Stages>, Fft::split, Fft::spare>;
    constexpr int W = Fft::N, pitch = row_pitch<T>(W), words = Fft::pitch > Back::pitch ? Fft::pitch : Back::pitch;
    static_assert(H % C == 0, "a block has rows of one matrix");
    static_assert(shared_bytes == 0 || words * C * sizeof(Word) <= shared_bytes, "room for all rows");
    static_assert(Fft::spare || L == Fft::G * C, "every thread has a row");
    extern __shared__ double2 shared[];

    const bool works = !Fft::spare || threadIdx.x < Fft::G * C;
    const unsigned place = works ? threadIdx.x / Fft::G : 0, t = threadIdx.x % Fft::G + (works ? 0 : kNoThread);
    const unsigned first = blockIdx.x % (H / C) * C;
    Complex<T>* const row = between + blockIdx.x * (1LL * C * pitch) + place * pitch;
    Complex<T>* const frequencies = spectrum + (first + place) * W;
    Word* const room = reinterpret_cast<Word*>(shared) + place * words;
    Complex<T> v[Fft::held(0)], w[Fft::held(Fft::last)];
    if (works) for_points<Fft, 0>(t, [&](int k, unsigned o) { v[k] = row[o]; });
    mixed_fft<Fft>(v, w, t, room, false);
    if constexpr (tabulates) {
        if (works) for_points<Fft, Fft::last>(t, [&](int k, unsigned o) { frequencies[o] = w[k]; });
    } else {
        for_points<Fft, Fft::last>(t, [&](int k, unsigned o) { w[k] = swapped<true>(w[k] * frequencies[o]); });
        mixed_fft<Back>(w, v, t, room, true);
        if (works) for_points<Fft, 0>(t, [&](int k, unsigned o) { row[o] = v[k]; });
    }
}

// Columns back, from `between` to the results in y, times the chirp
template <class Core, class Row, int W, int C, int L, int blocks, int shared_bytes, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    columns_back(const Complex<typename Core::Real>* __restrict__ between, typename Row::Output* __restrict__ y,
                 const Complex<typename Core::Real>* __restrict__ chirp, RowLayout<2, aligned, in_place> layout) {
    using T = typename Core::Real;
    using Word = typename Core::Word;
    static_assert(shared_bytes == 0 || Core::pitch * C * sizeof(Word) <= shared_bytes, "room for a tile");
    static_assert(Core::has_spare || L == Core::G * C, "every thread has a column");
    extern __shared__ double2 shared[];

    const auto column = Column<typename Core::Fft, W, C>::of_this_thread();
    constexpr int pitch = row_pitch<T>(W);
    const Complex<T>* const from = between + column.problem * (1LL * Core::N * pitch) + column.at;
    Complex<T> v[Core::inputs], w[Core::outputs];
    Core::for_inputs(column.t, [&](int k, unsigned o) { v[k] = from[o * pitch]; });
    twiddle<Side<Core, true>, W>(v, column.t, column.at);
    Core::run(v, w, column.t, reinterpret_cast<Word*>(shared) + threadIdx.x % C, chirp);
    if (!column.exists) return;
    typename Row::Output* const to = y + column.problem * layout.pitch_of(1, 1LL * Row::made);
    Core::for_outputs(column.t, [&](int k, unsigned o) {
        const unsigned n = o * W + column.at;
        if (n < Row::results) Row::store(to, n, swapped<true>(w[k]) * chirp[n]);
    });
}

// The chirp w[n] = exp(-i pi n^2 / N), and the filter of M points whose transform is the spectrum: conj w on both sides
// of 0, divided by M; from 0 on it has as many as results are wanted.
template <class T, int N, int wanted, int M, int L>
__global__ void __launch_bounds__(L) long_chirp(Complex<T>* __restrict__ filter, Complex<T>* __restrict__ chirp) {
    const auto at = [](unsigned n) { return root<T, 2 * N>(1ull * n * n % (2 * N)); };
    const unsigned o = blockIdx.x * L + threadIdx.x, n = o < wanted ? o : M - o;
    if (o >= M) return;
    filter[o] = scaled(conjugate(n < N ? at(n) : Complex<T>{0, 0}), T(1.0 / M));
    if (o < N) chirp[o] = at(o);
}
