// Inclusive scan of rows by the Ladner-Fischer circuit.
// "Performance Tuning for GPU-Embedded Systems", section III and Fig. 2; R. E. Ladner and M. J. Fischer,
// "Parallel Prefix Computation", J. ACM 27(4), 1980.
//
// A team of threads owns consecutive elements and reads them in chunks, so that every load is coalesced.
// Each thread adds up its part of a chunk; the circuit gives it the sum of what lies before. At each level
// neighbouring blocks of `span` threads join into one, and every thread of a block adds the totals of the
// blocks before its own: one total when r is 2, up to r - 1 when it is more, for fewer levels.
#include "threads.cuh"
#include "vectors.cuh"

// Totals travel by shuffles among the W lanes of a team.
template <int W, int C>
struct ByShuffle {
    template <int span>
    __device__ __forceinline__ void publish(const float (&below)[C], const float (&own)[C], int) {
#pragma unroll
        for (int c = 0; c < C; ++c) totals[c] = below[c] + own[c];
    }
    template <int span>
    __device__ __forceinline__ float total_of(int c, int block) const {
        return __shfl_sync(kAllLanes, totals[c], (block + 1) * span - 1, W);
    }
    float totals[C];
};

template <int span, int r>
constexpr bool kEvenLevel = !kEvenLevel<span / r, r>;
template <int r>
constexpr bool kEvenLevel<1, r> = true;

// Totals travel through shared memory. Two levels in turn use two places, so that one barrier a level is
// enough: who writes a place again has passed the barrier of the level between. Problems of one block may have
// no barrier in common, so each keeps to the room of its widest level, however few totals a later level has.
template <int G, int L, int C, int r>
struct ByShared {
    template <int span>
    __device__ __forceinline__ float& total(int c, int block) const {
        constexpr int first = kEvenLevel<span, r> ? 1 : r;  // the narrowest blocks whose totals lie there
        float* const place = first == 1 ? wide : narrow;
        return place[c * (L / first) + threadIdx.x / G * (G / first) + block];
    }
    template <int span>
    __device__ __forceinline__ void publish(const float (&below)[C], const float (&own)[C], int rank) const {
        if (rank % span == span - 1) {
#pragma unroll
            for (int c = 0; c < C; ++c) total<span>(c, rank / span) = below[c] + own[c];
        }
        meet<G>();
    }
    template <int span>
    __device__ __forceinline__ float total_of(int c, int block) const {
        return total<span>(c, block);
    }
    float* wide;    // C L totals: every other level, from the first
    float* narrow;  // C L / r totals
};

// Adds to `below` of each chunk what the threads of lower rank hold; `own` is what this one holds.
template <int G, int r, int span = 1, int C, class Exchange>
__device__ __forceinline__ void ladner_fischer(float (&below)[C], const float (&own)[C], int rank, Exchange& exchange) {
    if constexpr (span < G) {
        constexpr int R = r < G / span ? r : G / span;
        exchange.template publish<span>(below, own, rank);
        const int digit = rank / span % R;
        const int lowest = rank / (span * R) * R;
#pragma unroll
        for (int c = 0; c < C; ++c) {
#pragma unroll
            for (int block = 0; block < R - 1; ++block) {
                const float before = exchange.template total_of<span>(c, lowest + block);
                if (block < digit) below[c] += before;
            }
        }
        ladner_fischer<G, r, span * R>(below, own, rank, exchange);
    }
}

// Adds to `below` of each chunk the sum of the chunks before it, and returns the sum of all.
template <int W, int V>
__device__ __forceinline__ float chain_chunks(float (&below)[V], const float (&own)[V]) {
    float running = 0.0f;
#pragma unroll
    for (int v = 0; v < V; ++v) {
        const float sum = __shfl_sync(kAllLanes, below[v] + own[v], W - 1, W);
        below[v] += running;
        running += sum;
    }
    return running;
}

// Warps are scanned alone; one total of each goes through shared memory, and every warp scans those itself.
template <int G, int L, int r, int S, int V>
__device__ __forceinline__ void scan_by_shuffles(float (&below)[V], const float (&own)[V]) {
    constexpr int W = G < kWarp ? G : kWarp;
    constexpr int warps = G / W;  // that share a problem
    static_assert(S == (warps > 1 ? L / kWarp : 0), "with shuffles, shared memory holds one total per warp or none");
    const int lane = threadIdx.x % W;
    ByShuffle<W, V> lanes;
    ladner_fischer<W, r>(below, own, lane, lanes);
    const float sum = chain_chunks<W>(below, own);
    if constexpr (warps > 1) {
        __shared__ float sums[S];
        const int warp = threadIdx.x / kWarp;
        if (lane == 0) sums[warp] = sum;
        __syncthreads();
        float before[1] = {0.0f}, each[1] = {sums[warp / warps * warps + lane % warps]};
        ByShuffle<warps, 1> leaders;
        ladner_fischer<warps, r>(before, each, lane % warps, leaders);
        const float base = __shfl_sync(kAllLanes, before[0], warp % warps, warps);
#pragma unroll
        for (int v = 0; v < V; ++v) below[v] += base;
    }
}

// The totals of S / L chunks are scanned at a time; a chunk's sum is carried to the next ones.
template <int G, int L, int r, int S, int V>
__device__ __forceinline__ void scan_by_shared(float (&below)[V], const float (&own)[V]) {
    constexpr int C = S / L;  // chunks held at a time
    static_assert(C >= 1 && V % C == 0 && S % L == 0, "shared memory holds totals of whole chunks");
    __shared__ float wide[S], narrow[G > r ? S / r : 1], sums[V > 1 ? S / G : 1];
    const int rank = threadIdx.x % G, problem = threadIdx.x / G;
    float running = 0.0f;
#pragma unroll
    for (int round = 0; round < V; round += C) {
        float lower[C], held[C];
#pragma unroll
        for (int c = 0; c < C; ++c) lower[c] = 0.0f, held[c] = own[round + c];
        ByShared<G, L, C, r> threads{wide, narrow};
        ladner_fischer<G, r>(lower, held, rank, threads);
        if constexpr (V > 1) {
            if (rank == G - 1) {
#pragma unroll
                for (int c = 0; c < C; ++c) sums[problem * C + c] = lower[c] + held[c];
            }
            meet<G>();
        }
#pragma unroll
        for (int c = 0; c < C; ++c) {
            below[round + c] = lower[c] + running;
            if constexpr (V > 1) running += sums[problem * C + c];
        }
    }
}

// Scans each of `batch` rows of N floats.
//   P  elements per thread            L  threads per block (P L a multiple of N)
//   r  blocks joined per level        shuffle  exchange within warps by shuffles
//   S  totals of the block held in shared memory at a time
// x and y are aligned to 16 bytes.
template <int N, int P, int L, int r, int S, bool shuffle>
__global__ void __launch_bounds__(L, 1) scan_lf(const float* __restrict__ x, float* __restrict__ y, int batch) {
    constexpr int E = kVector<P>, V = P / E, G = N / P;
    constexpr int W = shuffle && G > kWarp ? kWarp : G;  // threads of a team
    static_assert(P * L % N == 0, "a block holds whole problems");
    const int rank = threadIdx.x % W;
    const size_t first = (size_t(blockIdx.x) * L + threadIdx.x - rank) * P + rank * E;
    const int room = first < size_t(batch) * N ? P * W : 0;  // the others go along for the barriers

    float value[P], below[V] = {}, own[V];
    load<P>(x + first, E * W, room, 0.0f, value);
#pragma unroll
    for (int v = 0; v < V; ++v) {
#pragma unroll
        for (int e = 1; e < E; ++e) value[v * E + e] += value[v * E + e - 1];
        own[v] = value[v * E + E - 1];
    }
    if constexpr (shuffle)
        scan_by_shuffles<G, L, r, S>(below, own);
    else
        scan_by_shared<G, L, r, S>(below, own);
#pragma unroll
    for (int i = 0; i < P; ++i) value[i] += below[i / E];
    store<P>(y + first, E * W, room, value);
}
