// Complex transforms of the rows of x, shape (batch, N); the inverse is divided by N.
//
// Stockham's autosort algorithm. A problem's G = N / P threads hold P points each: register j of thread t holds
// element t + j G. A stage of radix R is P / R butterflies in registers; in between, elements change threads
// through shared memory or by shuffles.
//
// Tunables: P points per thread; L threads per block (P L / N problems); r largest radix and order, which give the
// list of stages; S complex elements that shared memory holds at a time: P L exchanges them whole, P L / 2 real parts
// and then imaginary parts, 0 goes with shuffles; padding of shared memory; blocks that a multiprocessor is to hold
// at least, which bounds the registers (bytes in flight are what a transform at the speed of memory needs): with 1
// the compiler takes what it likes, with 0 it looks for a balance of its own, which is not the same.
#include "block_fft.cuh"
#include "row_layout.cuh"

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
__device__ constexpr int traded(int G, int Ns, int R) {
    return Ns < G ? smaller(log2_of(R), log2_of(G / Ns)) : 0;
}

template <int P, int G, int Ns, int R, unsigned lanes>
__device__ __forceinline__ void exchange_by_shuffles(float2 (&v)[P], unsigned& t) {
    constexpr int c = traded(G, Ns, R);
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

template <int P, int G, class Stages, int stage = 0, int Ns = 1, unsigned lanes = 0x43210>
__device__ __forceinline__ void fft_by_shuffles(float2 (&v)[P], unsigned& t) {
    constexpr int R = Stages::at(stage);
    butterflies<P, G, Ns, R>(v, t);
    if constexpr (stage + 1 < Stages::count) {
        exchange_by_shuffles<P, G, Ns, R, lanes>(v, t);
        constexpr unsigned next = rotated(lanes, log2_of(Ns), log2_of(G), traded(G, Ns, R));
        fft_by_shuffles<P, G, Stages, stage + 1, Ns * R, next>(v, t);
    }
}

// ---- the kernel ----------------------------------------------------------------------------------------------

// shared_bytes is what the launch provides
template <int N, bool inverse, int P, int L, int r, Order order, int S, bool shuffle, Padding padding, int blocks,
          int shared_bytes, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    fft(const float2* __restrict__ x, float2* __restrict__ y, int batch, RowLayout<2, aligned, in_place> layout) {
    using Stages = Ordered<N, r, order>;
    using Word = typename WordOf<S == P * L>::type;
    using Fft = BlockFft<N, P, Stages, Word, padding>;
    constexpr int G = N / P, problems = L / G;
    static_assert(shuffle ? S == 0 && G <= kWarp : S == P * L || 2 * S == P * L, "no such exchange");
    static_assert(L % G == 0, "a block holds whole problems");

    const unsigned place = threadIdx.x / G;
    unsigned t = threadIdx.x % G;
    const int problem = blockIdx.x * problems + place;
    const bool exists = problem < batch;  // threads past the end solve the last problem again and keep quiet
    const float2* const from = layout.source(x, y) + (exists ? problem : batch - 1) * layout.pitch_of(0, 1LL * N) + t;

    float2 v[P];
#pragma unroll
    for (int j = 0; j < P; ++j) v[j] = swapped<inverse>(from[j * G]);
    if constexpr (shuffle) {
        fft_by_shuffles<P, G, Stages>(v, t);
    } else {
        static_assert(problems * Fft::pitch * sizeof(Word) == shared_bytes, "the launch knows the room");
        extern __shared__ float2 shared[];
        block_fft<Fft>(v, t, reinterpret_cast<Word*>(shared) + place * Fft::pitch, false);
    }
    if (!exists) return;
    float2* const to = y + problem * layout.pitch_of(1, 1LL * N) + t;
    constexpr float scale = inverse ? 1.0f / N : 1.0f;
#pragma unroll
    for (int j = 0; j < P; ++j) {
        const float2 z = swapped<inverse>(v[j]);
        to[j * G] = make_float2(z.x * scale, z.y * scale);
    }
}
