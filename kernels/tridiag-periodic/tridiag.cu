// Periodic tridiagonal systems, whose first and last rows reach to each other's unknowns, by parallel cyclic reduction.
//
// A system is a circle: the G threads that share it find their neighbours modulo G, and in the end each row has its own
// unknown on both sides, so that one division more gives it. No filling rows may stand in the circle. So the first `short`
// threads of a system have P - 1 rows and the others P, and G P - short is N.
#include "tridiag_pcr.cuh"

// Parallel cyclic reduction of a circle
template <int G, bool open>
struct CircleReduction : ParallelCyclicReduction<G, open> {
    template <class T, class D, class Exchange>
    static __device__ __forceinline__ D expand(Row<T, D> row, D left, D last, int rank, Exchange& exchange) {
        if constexpr (open) return ParallelCyclicReduction<G, true>::expand(row, left, last, rank, exchange);
        return row.d * reciprocal(T{1} + row.l + row.r);
    }
};

template <class T_, int N_, int P_, int L_, int G_, int aligned>
struct Circle {
    using T = T_;
    static constexpr int N = N_, P = P_, L = L_, G = G_;
    static constexpr int systems = L / G;     // of a block
    static constexpr int lacking = G * P - N;  // threads with a row less
    static constexpr int widest = 16 / sizeof(T);
    // Numbers of one access
    static constexpr int E = lacking == 0 && P % widest == 0 && aligned % widest == 0 ? widest : 1;
    static_assert(2 <= G && G <= L && L % G == 0 && P >= 2 && 0 <= lacking && lacking < G, "all have rows");

    // Where a thread's rows are: its first register has no row if it lacks one
    __device__ __forceinline__ Circle(int batch) {
        const int rank = threadIdx.x % G, mine = threadIdx.x / G;
        lacks = rank < lacking;
        system = size_t(blockIdx.x) * systems + mine;
        exists = system < batch;
        left = batch - int(blockIdx.x) * systems < systems ? batch - int(blockIdx.x) * systems : systems;
        start = (aligned ? 0 : mine * N) + (lacks ? rank * (P - 1) - 1 : rank * P - lacking);
    }
    bool lacks, exists;
    size_t system;
    int left;   // systems of the block
    int start;  // element of the block's that the first register holds, or of its system's where systems lie apart
};

// Rows of a thread from the block's elements, in memory or in shared memory
template <class Here>
__device__ __forceinline__ void get_rows(const Here& here, const typename Here::T* from, typename Here::T beyond,
                                         typename Here::T (&values)[Here::P]) {
    constexpr int E = Here::E;
#pragma unroll
    for (int i = 0; i < Here::P; i += E) {
#pragma unroll
        for (int e = 0; e < E; ++e) values[i + e] = beyond;
        if (here.exists && !(here.lacks && i == 0)) get<E>(values + i, from + here.start + i);
    }
}

template <class Here>
__device__ __forceinline__ void put_rows(const Here& here, typename Here::T* to, typename Here::T (&values)[Here::P]) {
#pragma unroll
    for (int i = 0; i < Here::P; i += Here::E)
        if (here.exists && !(here.lacks && i == 0)) put<Here::E>(to + here.start + i, values + i);
}

// One thread solves P rows of a system, or P - 1, a block of L threads L / G systems.
//   loads, stores_shared  rows side by side through shared memory, of 4 N L / G numbers, else direct
//   blocks                that a multiprocessor is to hold at least, which bounds the registers
// Arrays are aligned to 16 bytes.
template <class T, int N, int P, int L, int G, bool loads_shared, bool stores_shared, int blocks, int aligned,
          bool in_place>
__global__ void __launch_bounds__(L, blocks)
    tridiag_periodic(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
                     const T* __restrict__ d, T* __restrict__ x, int batch,
                     RowLayout<5, aligned, in_place> layout) {
    using Here = Circle<T, N, P, L, G, aligned>;
    // Systems that lie apart are read and written directly
    constexpr bool load_shared = loads_shared && aligned == 0, store_shared = stores_shared && aligned == 0;
    extern __shared__ float4 shared[];
    T* const tile = reinterpret_cast<T*>(shared);
    const Here here(batch);
    const auto first = [&](int k) {
        return aligned ? here.system * layout.pitch_of(k, N) : size_t(blockIdx.x) * Here::systems * N;
    };
    const T* const from[4] = {a + first(0), b + first(1), c + first(2), layout.source(d, x) + first(3)};
    T* const to = x + first(4);
    T rows[4][P];
    if constexpr (load_shared) {
        for (int k = 0; k < 4; ++k)
            for (int i = threadIdx.x; i < here.left * N; i += L) tile[k * Here::systems * N + i] = from[k][i];
        __syncthreads();
    }
#pragma unroll
    for (int k = 0; k < 4; ++k)
        get_rows(here, load_shared ? tile + k * Here::systems * N : from[k], k == 1 ? T{1} : T{}, rows[k]);
    auto& [lower, diagonal, upper, right] = rows;
    if (here.lacks) lower[0] = T{-1};  // the unknown before
    scale(rows[0], rows[1], rows[2], rows[3]);
    eliminate_lower(rows[0], rows[1], rows[2], rows[3]);
    Row<T> next = {T{}, T{-1}, T{}};  // the last unknown by itself
#pragma unroll
    for (int i = P - 2; i >= 0; --i) {
        const Row<T> row = {lower[i] - upper[i] * next.l, -upper[i] * next.r, right[i] - upper[i] * next.d};
        if (i > 0 || !here.lacks) next = row;
    }
    using Method = Reduced<T, CircleReduction, G, L, true>;
    Solution<T> ends = Method::solve(next, {lower[P - 1], upper[P - 1], right[P - 1]});
    if constexpr (G <= kWarp) ends.left = of_lane(ends.last, threadIdx.x + G - 1, G);
    substitute(rows[0], rows[2], rows[3], ends);
    if constexpr (store_shared) {
        // No barrier before: a thread writes where it alone has read.
        put_rows(here, tile, right);
        __syncthreads();
        for (int i = threadIdx.x; i < here.left * N; i += L) to[i] = tile[i];
    } else {
        put_rows(here, to, right);
    }
}
