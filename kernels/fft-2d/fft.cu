// Two-dimensional complex transforms of planes of x, shape (batch, M, N): rows in one launch, columns in another, which
// works in place. Out of place altogether; the inverse is divided by M N. On either axis a large prime is convolved, by
// Rader's algorithm where its points are a product of small primes, else all points by Bluestein's (any_fft.cuh).
//
// Tunables: A rows that are M / A apart are transformed by the same threads. These then take the first radix A of all
// columns in their registers, so that columns of M / A points are left: their tiles are wider. r1, P1, L1, split1 of
// the rows as of fft-any; r2, P2, split2 of the columns likewise, C columns of a tile. bounded: blocks that a
// multiprocessor is to hold at least, which bounds the registers, follow from those that the numbers of a thread need.
#include "column_fft.cuh"

// A rows of each of `groups` groups: rows j, j + M / A, ... of a plane
template <class Core, int M, int A, bool inverse, int L, int blocks, int shared_bytes>
__global__ void __launch_bounds__(L, blocks)
    fft_rows(const Complex<typename Core::Real>* __restrict__ x, Complex<typename Core::Real>* __restrict__ y,
             const Complex<typename Core::Real>* __restrict__ table, int groups) {
    using T = typename Core::Real;
    using Word = typename Core::Word;
    constexpr int N = Core::N, per_block = L / Core::G, left = M / A;
    static_assert(shared_bytes == 0 || per_block * A * Core::pitch * sizeof(Word) <= shared_bytes, "room for all rows");
    static_assert(Core::has_spare || L % Core::G == 0, "every thread has a row");
    extern __shared__ double2 shared[];

    const auto [place, t] = seat_of<Core, per_block>(threadIdx.x);
    const int group = blockIdx.x * per_block + place;
    const bool exists = group < groups;  // threads past the end transform other rows again and keep quiet
    const int known = exists ? group : groups - 1, plane = known / left, j = known % left;
    const Complex<T>* const from = x + ((long long)plane * M + j) * N;
    Complex<T>* const to = y + ((long long)plane * M + A * j) * N;
    Word* const room = reinterpret_cast<Word*>(shared) + place * (A * Core::pitch);

    Complex<T> v[A][Core::inputs], w[A][Core::outputs];
#pragma unroll
    for (int a = 0; a < A; ++a) {
        Core::for_inputs(t, [&](int k, unsigned o) {
            v[a][k] = !Core::is_padded || o < N ? swapped<inverse>(from[a * left * N + o]) : Complex<T>{0, 0};
        });
    }
    Core::run(v, w, t, room, table);
    if (!exists) return;
    const Complex<T> step = root<T, M>(j), fourth = root<T, M>(A > 8 ? 4 * j : 0);
    Core::for_outputs(afresh(t), [&](int k, unsigned o) {
        Complex<T> u[A];
#pragma unroll
        for (int a = 0; a < A; ++a) u[a] = w[a][k];
        first_radix(u, step, fourth);
#pragma unroll
        for (int q = 0; q < A; ++q)
            if (!Core::is_padded || o < N) to[q * N + o] = u[q];
    });
}
