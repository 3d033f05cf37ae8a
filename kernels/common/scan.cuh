// Scans of rows, whatever the circuit that adds up the totals of threads.
//
// A row of N elements is filled up to M, the next power of two, with zeros that are never in memory; its G = M / P
// threads own P elements each. A team of W of them - a warp where totals travel by shuffles, else all - owns W P
// consecutive elements and reads them in chunks of W vectors of E elements, lanes side by side, so that every access
// touches whole lines. E is as much as 16 bytes hold, or less where N leaves rows aligned to less.
//
// Each thread adds up its part of a chunk; the circuit gives it the sum of what lies before.
#pragma once
#include "bulk_store.cuh"
#include "row_layout.cuh"
#include "scan_exchange.cuh"
#include "vectors.cuh"

__device__ constexpr int least(int a, int b, int c) { return a < b ? (a < c ? a : c) : (b < c ? b : c); }

// A scan's template parameters, and what follows from them.
//   N  elements of a row              P  elements per thread, a power of two up to M
//   L  threads per block (P L a multiple of M)
//   r  blocks of threads joined per level
//   S  totals of the block held in shared memory at a time: with shuffle one for each warp, or none where a warp
//      holds whole rows; else those of one chunk of each thread (L) or of several
//   shuffle    threads of a warp exchange totals by shuffles
//   exclusive  y[i] leaves x[i] out
//   bulk       warps store through 32 P elements each of dynamic shared memory
//   width      bytes of an element
//   aligned    of RowLayout
template <int N_, int P_, int L_, int r_, int S_, bool shuffle_, bool exclusive_, bool bulk_, int width, int aligned = 0>
struct ScanShape {
    static constexpr int N = N_, P = P_, L = L_, r = r_, S = S_;
    static constexpr bool shuffle = shuffle_, exclusive = exclusive_;
    static constexpr int M = next_pow2(N), G = M / P;
    static constexpr int rows = P * L / M;  // of a block
    static constexpr int E = least(P, 16 / width, (N | aligned) & -(N | aligned)), V = P / E;
    static constexpr int W = shuffle && G > kWarp ? kWarp : G;  // threads of a team
    static constexpr int teams = G / W;                         // that share a row
    static_assert(P <= M && P * L % M == 0, "threads hold elements of one row, blocks hold whole rows");
    // A warp stores consecutive elements: of rows that lie apart those of one, where it begins at 16 bytes.
    static constexpr bool apart = aligned > 0;
    static constexpr bool bulk = bulk_ && (!apart || (G > kWarp && aligned * width % 16 == 0));
    static_assert(!bulk || (shuffle && N * width % 16 == 0), "a warp stores consecutive elements, aligned to 16 bytes");
};

// Adds to `below` of each chunk the sum of the chunks before it, and returns the sum of all.
template <int W, class T, int V>
__device__ __forceinline__ T chain_chunks(T (&below)[V], const T (&own)[V]) {
    T running = 0;
#pragma unroll
    for (int v = 0; v < V; ++v) {
        const T sum = __shfl_sync(kAllLanes, below[v] + own[v], W - 1, W);
        below[v] += running;
        running += sum;
    }
    return running;
}

// Warps are scanned alone; one total of each goes through shared memory, and every warp scans those itself.
template <class Circuit, class Shape, class T, int V>
__device__ __forceinline__ void scan_by_shuffles(T (&below)[V], const T (&own)[V]) {
    constexpr int W = Shape::W, warps = Shape::teams, S = Shape::S;
    static_assert(S == (warps > 1 ? Shape::L / kWarp : 0), "with shuffles, S is one total per warp or none");
    const int lane = threadIdx.x % W;
    ByShuffle<T, W, V> lanes;
    Circuit::template run<W, Shape::r>(below, own, lane, lanes);
    const T sum = chain_chunks<W>(below, own);
    if constexpr (warps > 1) {
        __shared__ T sums[S];
        const int warp = threadIdx.x / kWarp;
        if (lane == 0) sums[warp] = sum;
        __syncthreads();
        T before[1] = {0}, each[1] = {sums[warp / warps * warps + lane % warps]};
        ByShuffle<T, warps, 1> leaders;
        Circuit::template run<warps, Shape::r>(before, each, lane % warps, leaders);
        const T base = __shfl_sync(kAllLanes, before[0], warp % warps, warps);
#pragma unroll
        for (int v = 0; v < V; ++v) below[v] += base;
    }
}

// The totals of S / L chunks are scanned at a time; a chunk's sum is carried to the next ones.
template <class Circuit, class Shape, class T, int V>
__device__ __forceinline__ void scan_by_shared(T (&below)[V], const T (&own)[V]) {
    constexpr int G = Shape::G, L = Shape::L, S = Shape::S;
    constexpr int C = S / L;  // chunks held at a time
    static_assert(C >= 1 && V % C == 0 && S % L == 0, "shared memory holds totals of whole chunks");
    __shared__ T places[2][S];
    const int rank = threadIdx.x % G;
    ByShared<T, G, L, C> threads{places};
    T running = 0;
#pragma unroll
    for (int round = 0; round < V; round += C) {
        T lower[C], held[C];
#pragma unroll
        for (int c = 0; c < C; ++c) lower[c] = 0, held[c] = own[round + c];
        Circuit::template run<G, Shape::r>(lower, held, rank, threads);
        if constexpr (V > 1) threads.publish(lower, held, rank == G - 1);
#pragma unroll
        for (int c = 0; c < C; ++c) {
            below[round + c] = lower[c] + running;
            if constexpr (V > 1) running += threads.total_of(c, G - 1);
        }
    }
}

// Adds up each chunk in place, and hands out the totals.
template <int E, class T, int P>
__device__ __forceinline__ void add_up(T (&value)[P], T (&total)[P / E]) {
#pragma unroll
    for (int v = 0; v < P / E; ++v) {
#pragma unroll
        for (int e = 1; e < E; ++e) value[v * E + e] += value[v * E + e - 1];
        total[v] = value[v * E + E - 1];
    }
}

// From sums within a chunk, and of what lies below it, to those of the row.
template <bool exclusive, int E, class T, int P>
__device__ __forceinline__ void raise(T (&value)[P], const T (&below)[P / E]) {
#pragma unroll
    for (int i = P - 1; i >= 0; --i) {
        if (exclusive)
            value[i] = i % E ? value[i - 1] + below[i / E] : below[i / E];
        else
            value[i] += below[i / E];
    }
}

// Stores a warp's results through its tile: whole rows next to each other, or what it owns of one row. `first` is where
// the lane's own begin in y, `room` how many of them there are; rows are `pitch` elements apart.
template <class Shape, class T, int P, class Pitch>
__device__ __forceinline__ void store_in_bulk(T* y, size_t first, int room, unsigned row, int batch, Pitch pitch,
                                              const T (&value)[P]) {
    constexpr int N = Shape::N, G = Shape::G, W = Shape::W, E = Shape::E;
    constexpr bool part = G > kWarp;  // of a row
    extern __shared__ float4 tiles[];
    T* const tile = reinterpret_cast<T*>(tiles) + threadIdx.x / kWarp * (kWarp * P);
    const int offset = threadIdx.x % kWarp / G * N + threadIdx.x % W * E;
    store<P, E>(tile + offset, E * W, room, value);
    const size_t rows = part ? min(row + 1, unsigned(batch)) : batch;  // that end before the warp's last element
    const size_t begin = first - offset, end = Shape::apart ? (rows - 1) * pitch + N : rows * N;
    const size_t most = part ? kWarp * P : kWarp / G * N;
    const int count = begin < end ? int(min(end - begin, most)) : 0;
    bulk_store(y + begin, tile, count * int(sizeof(T)), threadIdx.x % kWarp);
}

// Scans rows of x into y, the first and second array of the layout; both are aligned to 16 bytes.
template <class Circuit, class Shape, class T, class Layout>
__device__ __forceinline__ void scan_rows(const T* x, T* y, int batch, const Layout& layout) {
    constexpr int N = Shape::N, P = Shape::P, G = Shape::G, W = Shape::W, E = Shape::E, V = Shape::V;
    const unsigned row = blockIdx.x * Shape::rows + threadIdx.x / G;
    const int lane = threadIdx.x % W;
    const int place = (threadIdx.x % G - lane) * P + lane * E;  // in the row
    const int room = row >= unsigned(batch) ? 0 : N == Shape::M ? W * P : N - place;
    const auto pitch = layout.pitch_of(1, N);
    const size_t first = size_t(row) * pitch + place;  // in y
    const size_t from = Shape::apart ? size_t(row) * layout.pitch_of(0, N) + place : first;

    T value[P], below[V] = {}, own[V];
    load<P, E>(Layout::source(x, y) + from, E * W, room, T(0), value);
    add_up<E>(value, own);
    if constexpr (Shape::shuffle)
        scan_by_shuffles<Circuit, Shape>(below, own);
    else
        scan_by_shared<Circuit, Shape>(below, own);
    raise<Shape::exclusive, E>(value, below);
    if constexpr (Shape::bulk)
        store_in_bulk<Shape>(y, first, room, row, batch, pitch, value);
    else
        store<P, E>(y + first, E * W, room, value);
}
