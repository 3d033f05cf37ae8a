// Transforms of real rows, N any number: the first N / 2 + 1 frequencies of x, shape (batch, N), and back.
//
// An even N is transformed as N / 2 complex numbers, neighbours being real and imaginary part; what belongs to even
// and to odd elements is told apart by the symmetry of their transforms, in the same kernel. An odd N is transformed
// as complex numbers; by Bluestein's algorithm, with those N / 2 + 1 frequencies that are wanted, or given: back, each
// stands for its conjugate, too, in the real part of the result. Back, the result is divided by N, and the imaginary
// parts that no real row has are left out.
//
// Lengths, table and tunables as in fft-any. Back, the stages come in the opposite order, the smallest first: the
// frequencies then lie as the other direction leaves them, with opposite ones in one thread where P is twice the
// smallest radix.
#include "opposite.cuh"
#include "row_layout.cuh"

// exp(-2 pi i o / N) / part for element o, the number k % R of its butterfly: the first one's, turned by a known angle
template <class Side, int N, int part, class T>
__device__ __forceinline__ Complex<T> half_step(Complex<T>& first, int k, unsigned o) {
    constexpr int R = Side::Core::is_padded ? 1 : Side::radix;
    if (k % R == 0) first = scaled(root<T, N, 2 * R>(o), T(1.0 / part));
    return turned<2 * R>(first, k % R);
}

// The transform of either direction, with opposite frequencies in one thread where that can be
template <class Forward, bool inverse>
struct CoreOf {
    using type = typename Forward::PairedOutputs;
};
template <class Forward>
struct CoreOf<Forward, true> {
    using type = typename Forward::Next::PairedInputs;
};

template <class Core, int N, bool tile, class T>
__device__ __forceinline__ void forward(const T* from, Complex<T>* to, unsigned t,
                                        typename Core::Word* room, const Complex<T>* __restrict__ table, bool exists) {
    constexpr int M = Core::N;
    Complex<T> v[Core::inputs], w[Core::outputs];
    Core::for_inputs(t, [&](int k, unsigned o) {
        v[k] = Complex<T>{0, 0};
        if (Core::is_padded && o >= M) return;
        if constexpr (N % 2)
            v[k].x = from[o];
        else
            v[k] = reinterpret_cast<const Complex<T>*>(from)[o];
    });
    if constexpr (tile) __syncthreads();
    Core::run(v, w, t, room, table);
    using After = Side<Core, false>;
    Complex<T> others[Core::outputs];
    if constexpr (N % 2 == 0) find_opposites<After>(w, others, t, room, true);
    if constexpr (tile) __syncthreads();
    if (!exists) return;
    Complex<T> first;
    Core::for_outputs(t, [&](int k, unsigned o) {
        if constexpr (N % 2) {
            if (o <= N / 2) to[o] = w[k];
        } else {
            if (Core::is_padded && o >= M) return;
            // Halves first: twice a frequency may be no number any more
            const Complex<T> half = scaled(w[k], T(0.5)), other = scaled(conjugate(others[k]), T(0.5));
            const Complex<T> difference = half - other;
            const Complex<T> odd = half_step<After, N, 1>(first, k, o) * Complex<T>{difference.y, -difference.x};
            to[o] = half + other + odd;
            if (k == 0 && o == 0) to[M] = {w[k].x - w[k].y, 0};
        }
    });
}

template <class Core, int N, bool tile, class T>
__device__ __forceinline__ void backward(const Complex<T>* from, T* to, unsigned t,
                                         typename Core::Word* room, const Complex<T>* __restrict__ table, bool exists) {
    constexpr int M = Core::N;
    using Before = Side<Core, true>;
    constexpr bool by_room = N % 2 == 0 && !tile && !Before::paired;
    Complex<T> v[Core::inputs], w[Core::outputs], others[Core::inputs], first;
    const T middle = N % 2 ? T(0) : from[M].x;
    Core::for_inputs(t, [&](int k, unsigned o) {
        v[k] = Complex<T>{0, 0};
        if (Core::is_padded && o >= M) return;
        if (N % 2 == 0 || o <= N / 2)
            v[k] = from[o];
        else if (!Core::of_half)
            v[k] = conjugate(from[N - o]);
        if (N % 2 == 0 && tile) others[k] = from[M - o];
    });
    if constexpr (N % 2 == 0 && !tile) find_opposites<Before>(v, others, t, room, false);
    Core::for_inputs(t, [&](int k, unsigned o) {
        if (Core::is_padded && o >= M) return;
        if (k == 0 && o == 0) v[k] = {Core::of_half ? T(0.5) * v[k].x : v[k].x, 0};
        if constexpr (N % 2 == 0) {
            const Complex<T> one = v[k], other = k == 0 && o == 0 ? Complex<T>{middle, 0} : conjugate(others[k]);
            const Complex<T> odd = conjugate(half_step<Before, N, 2>(first, k, o)) * (one - other);
            const Complex<T> both = one + other;
            v[k] = {multiply_add(T(0.5), both.x, -odd.y), multiply_add(T(0.5), both.y, odd.x)};
        }
        v[k] = swapped<true>(v[k]);
    });
    if constexpr (tile) __syncthreads();
    Core::run(v, w, t, room, table, by_room);
    if constexpr (tile) __syncthreads();
    if (!exists) return;
    Core::for_outputs(t, [&](int k, unsigned o) {
        if (Core::is_padded && o >= M) return;
        const Complex<T> z = scaled(swapped<true>(w[k]), T((N % 2 && !Core::of_half ? 1.0 : 2.0) / N));
        if constexpr (N % 2)
            to[o] = z.x;
        else
            reinterpret_cast<Complex<T>*>(to)[o] = z;
    });
}

template <class T, bool complex>
struct NumberOf {
    using type = T;
};
template <class T>
struct NumberOf<T, true> {
    using type = Complex<T>;
};

template <class Forward, int N, bool inverse, bool tiled, int L, int blocks, int shared_bytes, int aligned>
__global__ void __launch_bounds__(L, blocks)
    fft_real(const typename NumberOf<typename Forward::Real, inverse>::type* __restrict__ x,
             typename NumberOf<typename Forward::Real, !inverse>::type* __restrict__ y,
             const Complex<typename Forward::Real>* __restrict__ table, int batch,
             RowLayout<2, aligned, false> layout) {
    using Core = typename CoreOf<Forward, inverse>::type;
    using T = typename Core::Real;
    using Word = typename Core::Word;
    using Input = typename NumberOf<T, inverse>::type;
    using Output = typename NumberOf<T, !inverse>::type;
    constexpr int problems = L / Core::G, frequencies = N / 2 + 1;
    constexpr bool tile = tiled && aligned == 0;  // rows that lie apart are read and written directly
    constexpr int given = inverse ? frequencies : N, made = inverse ? N : frequencies;
    static_assert(problems * Core::pitch * sizeof(Word) <= shared_bytes, "room for all problems");
    static_assert(!tile || problems * frequencies * sizeof(Complex<T>) <= shared_bytes, "room for all rows");
    static_assert(Core::has_spare || L % Core::G == 0, "every thread has a problem");
    extern __shared__ double2 shared[];

    const auto [place, t] = seat_of<Core, problems>(threadIdx.x);
    const int first = blockIdx.x * problems, problem = first + place, left = batch - first;
    const bool exists = problem < batch;  // threads past the end solve another problem again and keep quiet
    const int rows = left < problems ? left : problems;
    const Input* from = x + (exists ? problem : batch - 1) * layout.pitch_of(0, 1LL * given);
    Output* to = y + problem * layout.pitch_of(1, 1LL * made);
    if constexpr (tile) {
        copy_tile<L, problems * given>(reinterpret_cast<Input*>(shared), x + (long long)first * given, rows * given);
        __syncthreads();
        from = reinterpret_cast<const Input*>(shared) + (exists ? place : 0) * given;
        to = reinterpret_cast<Output*>(shared) + place * made;
    }
    Word* const room = reinterpret_cast<Word*>(shared) + place * Core::pitch;
    if constexpr (inverse)
        backward<Core, N, tile>(from, to, t, room, table, exists);
    else
        forward<Core, N, tile>(from, to, t, room, table, exists);
    if constexpr (tile) {
        __syncthreads();
        const Output* const results = reinterpret_cast<const Output*>(shared);
        copy_tile<L, problems * made>(y + (long long)first * made, results, rows * made);
    }
}
