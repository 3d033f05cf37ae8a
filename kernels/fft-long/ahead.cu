// Complex transforms of rows of x, shape (batch, N), that fill a multiprocessor: one pass over device memory. N is a
// product of small primes; the inverse is divided by N.
//
// A block holds a row in registers and leaves no room for many others whose loads would overlap with its arithmetic
// (fft-any). So the grid is what fits on the device, a block walks over rows, and a bulk copy brings the next row to
// shared memory while the present one is transformed: all of it, or the first points of each butterfly of a thread.
// Copies begin and end at multiples of 16 bytes; what is left of a row at its ends is read by its thread.
#include "mbarrier.cuh"
#include "mixed_fft.cuh"
#include "row_layout.cuh"

// Whether a row begins in the middle of 16 bytes
template <class T>
__device__ __forceinline__ unsigned skipped(const Complex<T>* row) {
    return sizeof(Complex<T>) < 16 ? unsigned(reinterpret_cast<unsigned long long>(row) / sizeof(Complex<T>) % 2) : 0;
}

// Points 0 to count - 1 of a row that lies anywhere in global memory, in shared memory; the first place is a multiple
// of 16 bytes, and holds count + 1 numbers.
template <class T, int count>
struct RowAhead {
    Complex<T>* place;
    Mbarrier* arrived;

    // By one thread, when no thread reads the place any more
    __device__ __forceinline__ void fetch(const Complex<T>* row) const {
        const unsigned odd = skipped(row), whole = sizeof(Complex<T>) < 16 ? (count - odd) / 2 * 2 : count;
        const unsigned bytes = whole * sizeof(Complex<T>);
        before_bulk_loads();
        mbarrier_expect(arrived, bytes);
        bulk_load(place + 2 * odd, row + odd, bytes, arrived);
    }
    // Point o of the row that was fetched; first, last: whether it may be point 0, or count - 1
    __device__ __forceinline__ Complex<T> at(unsigned o, const Complex<T>* row, bool first, bool last) const {
        const unsigned odd = skipped(row);
        if (sizeof(Complex<T>) < 16 && first && o < odd) return row[o];
        if (sizeof(Complex<T>) < 16 && last && o == count - 1 && (count - odd) % 2 == 1) return row[o];
        return place[o + odd];
    }
};

template <class Fft, int early, bool inverse, int L, int blocks, int shared_bytes, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    rows_ahead(const Complex<typename Fft::Real>* __restrict__ x, Complex<typename Fft::Real>* __restrict__ y,
               int batch, RowLayout<2, aligned, in_place> layout) {
    using T = typename Fft::Real;
    using Word = typename Fft::Word;
    using Row = RowAhead<T, early * Fft::butterflies(0)>;
    constexpr int N = Fft::N, R = Fft::Stages::at(0), kept = early * Fft::butterflies(0) + 2;
    static_assert(kept * sizeof(Complex<T>) + Fft::pitch * sizeof(Word) + sizeof(double2) <= shared_bytes, "room");
    static_assert(Fft::spare || L == Fft::G, "every thread has points");
    extern __shared__ double2 shared[];

    Complex<T>* const numbers = reinterpret_cast<Complex<T>*>(shared + 1);
    Word* const room = reinterpret_cast<Word*>(numbers + kept);
    const Row next{numbers, reinterpret_cast<Mbarrier*>(shared)};
    const bool works = !Fft::spare || threadIdx.x < Fft::G;
    const unsigned seat = works ? threadIdx.x : kNoThread + threadIdx.x % Fft::G;
    const Complex<T>* const source = layout.source(x, y);
    const long long pitch = layout.pitch_of(0, 1LL * N);

    if (threadIdx.x == 0) {
        mbarrier_make(next.arrived, 1);
        mbarrier_made();
        next.fetch(source + blockIdx.x * pitch);
    }
    __syncthreads();
    unsigned phase = 0;
#pragma unroll 1
    for (int row = blockIdx.x; row < batch; row += gridDim.x) {
        const unsigned t = afresh(seat);  // else registers would hold for all rows what follows from it
        const Complex<T>* const from = source + row * pitch;
        Complex<T> v[Fft::held(0)], w[Fft::held(Fft::last)];  // idle threads read, too: else v would outlive its row
        for_points<Fft, 0>(t, [&](int k, unsigned o) {
            if (k % R >= early) v[k] = swapped<inverse>(from[o]);
        });
        mbarrier_wait(next.arrived, phase);
        phase ^= 1;
        for_points<Fft, 0>(t, [&](int k, unsigned o) {
            if (k % R < early) v[k] = swapped<inverse>(next.at(o, from, k == 0, k % R == early - 1));
        });
        __syncthreads();  // the last reads of the row, and of the room by threads with the row before
        const int following = row + gridDim.x;
        if (threadIdx.x == 0 && following < batch) next.fetch(source + following * pitch);
        mixed_fft<Fft>(v, w, t, room, false);
        constexpr T scale = inverse ? T(1.0 / N) : T(1);
        Complex<T>* const to = y + row * layout.pitch_of(1, 1LL * N);
        if (works) {
            for_points<Fft, Fft::last>(
                afresh(t), [&](int k, unsigned o) { to[o] = scaled(swapped<inverse>(w[k]), scale); });
        }
    }
}
