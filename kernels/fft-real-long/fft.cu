// Transforms of long real rows, N = N1 N2 odd or a product of small primes: the first N / 2 + 1 frequencies of x, shape
// (batch, N), and back. Two passes over device memory, each of which reads, and writes, as many bytes as the row has.
//
// The passes are those of fft-long: columns of N1 points, then rows of N2 points. A real column and its neighbour
// are transformed as one complex column, and told apart by the symmetry of their transforms. Frequencies of a real
// column above N1 / 2 follow from those below, so that the second pass has N1 / 2 + 1 rows. Row k leads to frequencies
// k + N1 l of the whole; those above N / 2 are conjugates of frequencies N - k - N1 l, which no other row leads to.
//
// Back, the columns are those of the spectrum, of which columns 0 to N2 / 2 tell the others; rows 2 j and 2 j + 1 of the
// second pass have real results, and are transformed as real and imaginary part of one row. The result is divided by N.
//
// Of other even lengths neighbours are real and imaginary part of one number, and what belongs to either is told apart
// in a pass behind them, or as rows are read. Other odd ones, whose large primes no pass convolves, are convolved as a
// whole, with N / 2 frequencies that are given or wanted: by M >= 3 N / 2 points. Tunables: see fft-long.
#include "long_fft.cuh"
#include "opposite.cuh"
#include "row_layout.cuh"
#include "row_numbers.cuh"
#include "vectors.cuh"

// others[k] becomes point Core::N - o of the column where v[k] is point o behind the last stage, up to the middle one
template <class Core, class T>
__device__ __forceinline__ void find_opposites_of_column(Complex<T> (&v)[Core::outputs],
                                                         Complex<T> (&others)[Core::outputs], unsigned t,
                                                         typename Core::Word* room) {
    if constexpr (!Core::convolves && Core::Fft::last == 0) {  // a thread has the column
#pragma unroll
        for (int q = 0; q < Core::N; ++q) others[q] = v[(Core::N - q) % Core::N];
    } else {
        using Fft = typename Core::Fft;
        // Where a thread writes, it alone has read, but for padding and for threads that do as others do
        constexpr bool in_use = Core::convolves || Fft::spare || Fft::skip(Fft::last - 1) > 0;
        find_opposites<Side<Core, false>, true>(v, others, t, room, in_use);
    }
}

// Of two neighbouring lanes, the left one has numbers 0 and 1 of a row in `ones` and `others`, and the right one 2 and 3.
// Then the left one has 0 and 2, and the right one 1 and 3: what both write of `ones` lies side by side. All lanes of a
// warp call it.
template <class T, int P>
__device__ __forceinline__ void trade_with_neighbours(Complex<T> (&ones)[P], Complex<T> (&others)[P]) {
    const bool right = threadIdx.x % 2;
#pragma unroll
    for (int k = 0; k < P; ++k) {
        const Complex<T> given = right ? ones[k] : others[k];
        const Complex<T> got = {__shfl_xor_sync(kAllLanes, given.x, 1), __shfl_xor_sync(kAllLanes, given.y, 1)};
        ones[k] = right ? got : ones[k];
        others[k] = right ? others[k] : got;
    }
}

// Columns 2 j and 2 j + 1 of a real matrix of Forward::N rows and W columns, C pairs in a block
template <class Forward, int W, int C, int L, int blocks, int shared_bytes, int aligned>
__global__ void __launch_bounds__(L, blocks)
    real_columns(const typename Forward::Real* __restrict__ x, Complex<typename Forward::Real>* __restrict__ between,
                 const Complex<typename Forward::Real>* __restrict__ table, RowLayout<2, aligned, false> layout) {
    using Core = typename Forward::PairedOutputs;  // opposite frequencies in one thread, where that can be
    using T = typename Core::Real;
    using Word = typename Core::Word;
    using Outputs = Side<Core, false>;
    constexpr int M = Core::N * W, pitch = row_pitch<T>(W), rows = Core::N / 2 + 1;
    static_assert(shared_bytes == 0 || Core::pitch * C * sizeof(Word) <= shared_bytes, "room for a tile");
    static_assert(Core::Fft::last == 0 || shared_bytes > 0, "opposite frequencies are exchanged");
    static_assert(Core::has_spare || L == Core::G * C, "every thread has a column");
    extern __shared__ double2 shared[];

    const auto column = Column<typename Core::Fft, (W + 1) / 2, C>::of_this_thread();
    const unsigned left = 2 * column.at;
    const T* const from = x + column.problem * layout.pitch_of(0, 1LL * M) + left;
    Complex<T> v[Core::inputs], w[Core::outputs], others[Core::outputs];
    Core::for_inputs(column.t, [&](int k, unsigned o) {
        if (Core::is_padded && o >= Core::N)
            v[k] = {0, 0};
        else if constexpr (W % 2 || aligned == 1)
            v[k] = {from[o * W], left + 1 < W ? from[o * W + 1] : T(0)};
        else
            v[k] = *reinterpret_cast<const Complex<T>*>(from + o * W);
    });
    Word* const room = reinterpret_cast<Word*>(shared) + threadIdx.x % C;
    Core::run(v, w, column.t, room, table);
    find_opposites_of_column<Core>(w, others, column.t, room);
    constexpr bool trades = sizeof(Complex<T>) == 16 && C % 2 == 0;  // doubles, which would be written by half sectors
    static_assert(!trades || (W + 3) / 4 * 4 <= pitch, "behind a row there is room for all numbers of two lanes");
    if (!trades && !column.exists) return;
#pragma unroll
    for (int k = 0; k < Core::outputs; ++k) {
        // Halves first: twice a frequency may be no number any more
        const Complex<T> one = scaled(w[k], T(0.5)), other = scaled(conjugate(others[k]), T(0.5));
        const Complex<T> difference = one - other;
        w[k] = one + other;
        others[k] = {difference.y, -difference.x};
    }
    const unsigned t = afresh(column.t), even = afresh(left);
    twiddle<Outputs, W>(w, t, even);
    twiddle<Outputs, W>(others, afresh(t), even + 1);
    Complex<T>* to = between + column.problem * (1LL * rows * pitch) + left;  // behind an odd row there is room
    if constexpr (trades) {
        const int of_left = threadIdx.x % kWarp / 2 * 2;
        trade_with_neighbours(w, others);
        // From the left lane's column on; the right lane repeats that one where it has none, and writes all the same
        to -= 2 * (column.at - __shfl_sync(kAllLanes, column.at, of_left));
        to += threadIdx.x % 2;
        if (!__shfl_sync(kAllLanes, int(column.exists), of_left)) return;
    }
    Core::for_outputs(column.t, [&](int k, unsigned o) {
        if (!Core::output_below(k, o, rows)) return;
        if constexpr (sizeof(Complex<T>) < 16) {
            *reinterpret_cast<Pack<Complex<T>, 2>*>(to + o * pitch) = {{w[k], others[k]}};
        } else {
            to[o * pitch] = w[k];
            to[o * pitch + (trades ? 2 : 1)] = others[k];
        }
    });
}

// Rows 0 to H / 2 of a matrix of H rows and Core::N columns, to the frequencies of real numbers. shifts: tiles begin at
// multiples of C numbers of y, where rows of y rarely begin, as sectors that two blocks write take longer.
template <class Core, int H, int C, bool shifts, int L, int blocks, int shared_bytes, int aligned>
__global__ void __launch_bounds__(L, blocks)
    rows_to_frequencies(const Complex<typename Core::Real>* __restrict__ between,
                        Complex<typename Core::Real>* __restrict__ y,
                        const Complex<typename Core::Real>* __restrict__ table, RowLayout<2, aligned, false> layout) {
    using T = typename Core::Real;
    using Rows = RowsOf<Core, C>;
    constexpr int W = Core::N, N = H * W, pitch = row_pitch<T>(W), rows = H / 2 + 1;
    constexpr unsigned tiles = (rows + (shifts ? 2 : 1) * (C - 1)) / C;
    static_assert(shared_bytes == 0 || Rows::bytes <= shared_bytes, "room for a tile");
    static_assert(Core::has_spare || L == Core::G * C, "every thread has a row");

    const unsigned problem = blockIdx.x / tiles;
    const long long begin = problem * layout.pitch_of(1, 1LL * (N / 2 + 1));
    const int first = int(blockIdx.x % tiles * C) - (shifts ? int(begin % C) : 0);
    if (first >= rows) return;
    const Lane loads = Rows::loaded(threadIdx.x), stores = Rows::stored(threadIdx.x);
    constexpr bool partial = shifts || rows % C != 0;  // some tiles have fewer rows
    int row = first + int(loads.row);
    if (partial) row = row < 0 ? 0 : row < rows ? row : rows - 1;
    const Complex<T>* const from = between + problem * (1LL * rows * pitch) + row * pitch;
    Complex<T> v[Core::inputs], w[Core::outputs];
    Core::for_inputs(loads.t, [&](int k, unsigned o) {
        v[k] = !Core::is_padded || o < W ? from[o] : Complex<T>{0, 0};
    });
    transform_rows<Rows>(v, w, table);
    const int frequency = first + int(stores.row);
    if (partial && (frequency < 0 || frequency >= rows)) return;
    const bool mirrors = frequency > 0 && 2 * frequency < H;  // else the row leads to both of each pair
    Complex<T>* const up = y + begin + frequency;
    Complex<T>* const down = up + (N - 2 * frequency);
    Core::for_outputs(stores.t, [&](int k, unsigned o) {
        if (Core::is_padded && o >= W) return;
        const int n = o * H;
        const bool below = Core::output_below(k, o, (W + 1) / 2);
        // Most k are told apart by the compiler
        const bool lowest = Core::output_below(k, o, 1) && frequency == 0;
        const bool may_be_middle = Core::output_below(k, o, W / 2 + 1) && !Core::output_below(k, o, (W - 1) / 2);
        const bool middle = may_be_middle && 2 * (frequency + n) == N;
        if (lowest || middle) w[k].y = 0;
        if (below)
            up[n] = w[k];
        else if (mirrors || middle)
            down[-n] = conjugate(w[k]);
    });
}

// Rows 2 j and 2 j + 1 of a matrix of H rows, of which columns 0 to Core::N / 2 are given, to the real numbers that are
// every H-th of a row of y. C pairs in a block. Real and imaginary parts have changed places (see swapped).
template <class Core, int H, int C, int L, int blocks, int shared_bytes, int aligned>
__global__ void __launch_bounds__(L, blocks)
    rows_to_real(const Complex<typename Core::Real>* __restrict__ between, typename Core::Real* __restrict__ y,
                 const Complex<typename Core::Real>* __restrict__ table, RowLayout<2, aligned, false> layout) {
    using T = typename Core::Real;
    using Rows = RowsOf<Core, C>;
    constexpr int W = Core::N, pitch = row_pitch<T>(W / 2 + 1), pairs = (H + 1) / 2;
    constexpr unsigned tiles = (pairs + C - 1) / C;
    static_assert(shared_bytes == 0 || Rows::bytes <= shared_bytes, "room for a tile");
    static_assert(Core::has_spare || L == Core::G * C, "every thread has a row");

    const unsigned problem = blockIdx.x / tiles, first = blockIdx.x % tiles * C;
    const Lane loads = Rows::loaded(threadIdx.x), stores = Rows::stored(threadIdx.x);
    const unsigned pair = pairs % C == 0 || first + loads.row < pairs ? first + loads.row : pairs - 1;
    const bool has_second = H % 2 == 0 || 2 * pair + 1 < H;
    const Complex<T>* const from = between + problem * (1LL * H * pitch) + 2 * pair * pitch;
    const Complex<T>* const second = from + (has_second ? pitch : 0);
    Complex<T> v[Core::inputs], w[Core::outputs];
    Core::for_inputs(loads.t, [&](int k, unsigned o) {
        v[k] = {0, 0};
        if (Core::is_padded && o >= W) return;
        const bool given = Core::input_below(k, o, W / 2 + 1);
        const Complex<T> a = from[given ? o : W - o];
        Complex<T> b = second[given ? o : W - o];
        if (!has_second) b = {0, 0};
        v[k] = given ? Complex<T>{a.x + b.y, a.y - b.x} : Complex<T>{b.y - a.x, a.y + b.x};
    });
    transform_rows<Rows>(v, w, table);
    const unsigned left = 2 * (first + stores.row);
    if (pairs % C != 0 && left >= H) return;
    constexpr T scale = T(1.0 / (1LL * H * W));
    T* const to = y + problem * layout.pitch_of(1, 1LL * H * W) + left;
    Core::for_outputs(stores.t, [&](int k, unsigned o) {
        if (Core::is_padded && o >= W) return;
        const Complex<T> z = scaled(swapped<true>(w[k]), scale);
        if constexpr (H % 2 == 0 && aligned != 1) {
            *reinterpret_cast<Complex<T>*>(to + o * H) = z;
        } else {
            to[o * H] = z.x;
            if (left + 1 < H) to[o * H + 1] = z.y;
        }
    });
}

// ---- other even lengths -----------------------------------------------------------------------------------------------

// In place: transforms of N complex numbers, neighbours of a real row, become its N + 1 frequencies. A thread has
// frequencies k and N - k.
template <class T, int N, int L, int aligned>
__global__ void __launch_bounds__(L) half_frequencies(Complex<T>* __restrict__ y, RowLayout<2, aligned, false> layout) {
    constexpr unsigned tiles = (N / 2 + L) / L;
    const unsigned k = blockIdx.x % tiles * L + threadIdx.x;
    if (k > N / 2) return;
    Complex<T>* const row = y + blockIdx.x / tiles * layout.pitch_of(1, N + 1LL);
    // Halves first: twice a frequency may be no number any more
    const Complex<T> one = row[k], half = scaled(one, T(0.5)), other = scaled(conjugate(row[k ? N - k : 0]), T(0.5));
    const Complex<T> even = half + other, difference = half - other;
    const Complex<T> odd = root<T, 2 * N>(k) * Complex<T>{difference.y, -difference.x};
    row[N - k] = k ? conjugate(even - odd) : Complex<T>{one.x - one.y, 0};
    row[k] = k ? even + odd : Complex<T>{one.x + one.y, 0};
}
