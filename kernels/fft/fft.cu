// Forward complex transforms of the rows of x, shape (batch, N), out of place.
//
// Stockham's autosort algorithm. A problem's G = N / P threads hold P points each: register j of thread t holds
// element t + j G. A stage of radix R is P / R butterflies in registers; in between, elements change threads
// through shared memory or by shuffles. The radices multiply up to N: a smaller one first, if need be, then r.
//
// Tunables: P points per thread; L threads per block (P L / N problems); r radix; S complex elements that shared
// memory holds at a time: P L exchanges them whole, P L / 2 real parts and then imaginary parts (section V-C of
// "Performance Tuning for GPU-Embedded Systems"), 0 goes with shuffles.
#include "butterflies.cuh"
#include "threads.cuh"

template <int N_, int P_, int L_, int r_, int S_, bool shuffle_>
struct Shape {
    static constexpr int N = N_, P = P_, L = L_, r = r_, S = S_;
    static constexpr bool shuffle = shuffle_;
    static constexpr int G = N / P;
    static constexpr int problems = P * L / N;
    static constexpr int left_over = log2_of(N) % log2_of(r);
    static constexpr int first = left_over ? 1 << left_over : r;
    static_assert(r <= P && P <= 32 && r <= 16, "a thread holds whole butterflies, and angles are 1 / 32 turns");
    static_assert(P <= N && N <= P * L, "a block holds whole problems");
    static_assert(shuffle ? S == 0 && G <= kWarp : S == P * L || 2 * S == P * L, "no such exchange");
};

// ---- exchange through shared memory --------------------------------------------------------------------------

// Where things lie while a stage's results are exchanged. Lanes write runs of Ns elements, R Ns apart, and read
// in order; `skipped` words after every `block` keep most of the writes in different banks. Arguments that are
// summed have no bit in common, which makes both functions additive: a thread's place plus constants.
template <class Word, int Ns, int R>
struct Places {
    static constexpr int words = 128 / sizeof(Word);  // that fill all banks
    static constexpr int block = larger(words, Ns * R);
    static constexpr int skipped = Ns < words ? smaller(Ns, block / 8) : 0;
    __device__ static constexpr unsigned element(unsigned o) { return o + o / block * skipped; }
    __device__ static constexpr unsigned butterfly(unsigned b) { return element(b / Ns * (Ns * R) + b % Ns); }
};

// Words from one problem of a block to the next; problems that share a warp start in different banks
template <class Shape, class Word, int Ns, int R>
__device__ constexpr int pitch(int room = Shape::N) {
    if constexpr (Ns * R < Shape::N) {
        const int needed = Places<Word, Ns, R>::element(Shape::N);
        return pitch<Shape, Word, Ns * R, Shape::r>(larger(room, needed));
    }
    return Shape::G < Places<Word, Ns, R>::words ? room + ((Shape::G - room) & (2 * Shape::G - 1)) : room;
}

// The results of a stage come to where the next stage wants them, `part` by part
template <class Shape, int Ns, int R, class Word, class Part>
__device__ __forceinline__ void exchange(float2 (&v)[Shape::P], unsigned t, Word* room, bool in_use, Part part) {
    constexpr int P = Shape::P, G = Shape::G;
    using At = Places<Word, Ns, R>;
    Word* const to = room + At::butterfly(t);
    const Word* const from = room + At::element(t);
    if (in_use) meet<G>();
#pragma unroll
    for (int i = 0; i < P / R; ++i) {
#pragma unroll
        for (int q = 0; q < R; ++q) to[At::butterfly(i * G) + At::element(q * Ns)] = part(v[i + q * (P / R)]);
    }
    meet<G>();
#pragma unroll
    for (int j = 0; j < P; ++j) part(v[j]) = from[At::element(j * G)];
}

// ---- exchange by shuffles ------------------------------------------------------------------------------------

// Digit k of `lanes` is the lane bit that holds bit k of t. A stage moves the top bits of an element's index down
// to bit log2(Ns), so the bits of t from there on rotate; no lane has to move for that, only its name changes.
__device__ constexpr unsigned rotated(unsigned lanes, int from, int to, int by) {
    unsigned result = 0;
    for (int k = 0; k < to; ++k) {
        const int old = k < from ? k : k < from + by ? to - by + k - from : k - by;
        result |= (lanes >> 4 * old & 15) << 4 * k;
    }
    return result;
}

// Bits of t that change places with register bits after a stage
template <class Shape, int Ns, int R>
__device__ constexpr int traded() {
    return Ns < Shape::G ? smaller(log2_of(R), log2_of(Shape::G / Ns)) : 0;
}

template <class Shape, int Ns, int R, unsigned lanes>
__device__ __forceinline__ void exchange_by_shuffles(float2 (&v)[Shape::P], unsigned& t) {
    constexpr int P = Shape::P, G = Shape::G, c = traded<Shape, Ns, R>();
#pragma unroll
    for (int m = 0; m < c; ++m) {
        const int bit = log2_of(G) - c + m, lane_mask = 1 << (lanes >> 4 * bit & 15);
        const bool upper = t >> bit & 1;
#pragma unroll
        for (int s = 0; s < P; ++s) {
            const int partner = s | P / R << m;
            if (s == partner) continue;
            float2& goes = v[s];
            float2& stays = v[partner];
            const float2 sent = upper ? goes : stays;
            const float2 got = make_float2(__shfl_xor_sync(kAllLanes, sent.x, lane_mask),
                                           __shfl_xor_sync(kAllLanes, sent.y, lane_mask));
            goes = upper ? got : goes;
            stays = upper ? stays : got;
        }
    }
    constexpr int A = larger(Ns / G, 1);
    float2 moved[P];
#pragma unroll
    for (int s = 0; s < P; ++s) {
        const int i = s % (P / R), q = s / (P / R), rotated_q = q >> c | q % (1 << c) << log2_of(R) - c;
        moved[i / A * (A * R) + rotated_q * A + i % A] = v[s];
    }
#pragma unroll
    for (int s = 0; s < P; ++s) v[s] = moved[s];
    if constexpr (Ns < G) t = t % Ns + (t / Ns << c | t / Ns >> log2_of(G / Ns) - c) % (G / Ns) * Ns;
}

// ---- the kernel ----------------------------------------------------------------------------------------------

template <class Shape, int Ns, int R, unsigned lanes, class Word>
__device__ __forceinline__ void stages(float2 (&v)[Shape::P], unsigned& t, Word* room) {
    butterflies<Shape::P, Shape::G, Ns, R>(v, t);
    if constexpr (Ns * R < Shape::N) {
        if constexpr (Shape::shuffle) {
            exchange_by_shuffles<Shape, Ns, R, lanes>(v, t);
        } else if constexpr (sizeof(Word) == sizeof(float2)) {
            exchange<Shape, Ns, R>(v, t, room, Ns > 1, [](float2& z) -> float2& { return z; });
        } else {
            exchange<Shape, Ns, R>(v, t, room, Ns > 1, [](float2& z) -> float& { return z.x; });
            exchange<Shape, Ns, R>(v, t, room, true, [](float2& z) -> float& { return z.y; });
        }
        constexpr int ns = log2_of(Ns), g = log2_of(Shape::G);
        constexpr unsigned next = Shape::shuffle ? rotated(lanes, ns, g, traded<Shape, Ns, R>()) : lanes;
        stages<Shape, Ns * R, Shape::r, next>(v, t, room);
    }
}

template <bool whole>
struct WordOf {
    using type = float;
};
template <>
struct WordOf<true> {
    using type = float2;
};

// Blocks to fit a multiprocessor's registers: 16 Ki points in flight are enough, so threads of 16 points keep to 64
// registers and those of 32 to 128. Left to itself, the compiler aims at more threads and spills.
__device__ constexpr int resident_blocks(int P, int L) {
    return larger(1, smaller(16, smaller(1024, 16384 / P) / L));
}

template <int N, int P, int L, int r, int S, bool shuffle>
__global__ void __launch_bounds__(L, resident_blocks(P, L)) fft(const float2* __restrict__ x, float2* __restrict__ y, int batch) {
    using Here = Shape<N, P, L, r, S, shuffle>;
    using Word = typename WordOf<S == P * L>::type;
    constexpr unsigned G = Here::G;
    const unsigned place = threadIdx.x / G;
    unsigned t = threadIdx.x % G;
    const int problem = blockIdx.x * Here::problems + place;
    const bool exists = problem < batch;  // threads past the end solve the last problem again and keep quiet
    const float2* const from = x + (long long)(exists ? problem : batch - 1) * N + t;

    float2 v[P];
#pragma unroll
    for (int j = 0; j < P; ++j) v[j] = from[j * G];
    if constexpr (shuffle) {
        stages<Here, 1, Here::first, 0x43210>(v, t, static_cast<float*>(nullptr));
    } else {
        constexpr int words = pitch<Here, Word, 1, Here::first>();
        __shared__ Word room[Here::problems * words];
        stages<Here, 1, Here::first, 0>(v, t, room + place * words);
    }
    if (!exists) return;
    float2* const to = y + (long long)problem * N + t;
#pragma unroll
    for (int j = 0; j < P; ++j) to[j * G] = v[j];
}
