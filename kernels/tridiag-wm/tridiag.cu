// Tridiagonal systems by the divide and conquer of Wang and Mou.
// "Performance Tuning for GPU-Embedded Systems", sections III and V-A and Fig. 2; X. Wang and Z. G. Mou, "A
// divide-and-conquer method of solving tridiagonal systems on hypercube massively parallel computers", IPDPS 1991.
//
// Each thread eliminates its P rows in registers until one equation is left that ties its last unknown to
// those of its neighbours. Those G = N / P equations are the reduced system. The method keeps every unknown
// of a block as a function of the two unknowns just outside; where two blocks meet, the last equation of the
// left one and the first of the right one eliminate the two unknowns at the joint. r blocks are joined at
// each exchange, in log2(r) levels within the registers. When one block is left nothing is outside.
#include "threads.cuh"
#include "vectors.cuh"

// An unknown by those outside of its block: x = d - l x_left - r x_right.
struct Row {
    float l, r, d;
};

// The fast division errs by 2 ulp at most, which these systems do not notice, and spares a dozen instructions.
__device__ __forceinline__ float reciprocal(float x) { return __fdividef(1.0f, x); }

// A row of the left block, once the first unknown of the right one is known by those outside of both.
__device__ __forceinline__ Row in_left(Row row, Row first) {
    return {row.l - row.r * first.l, -row.r * first.r, row.d - row.r * first.d};
}

// A row of the right block, once the last unknown of the left one is.
__device__ __forceinline__ Row in_right(Row row, Row last) {
    return {-row.l * last.l, row.r - row.l * last.r, row.d - row.l * last.d};
}

// The two unknowns at a joint, each by the other, become functions of those outside of both blocks.
__device__ __forceinline__ void join(Row& last, Row& first) {
    const float k = reciprocal(1.0f - last.r * first.l);
    const Row left = last, right = first;
    last = {left.l * k, -left.r * right.r * k, (left.d - left.r * right.d) * k};
    first = {-right.l * left.l * k, right.r * k, (right.d - right.l * left.d) * k};
}

__device__ __forceinline__ Row shuffled(Row row, int lane, int width) {
    return {__shfl_sync(kAllLanes, row.l, lane, width), __shfl_sync(kAllLanes, row.r, lane, width),
            __shfl_sync(kAllLanes, row.d, lane, width)};
}

// Rows travel by shuffles among W lanes.
template <int W>
struct ByShuffle {
    template <int span>
    __device__ __forceinline__ void publish(Row first_row, Row last_row, int) {
        first = first_row, last = last_row;
    }
    __device__ __forceinline__ Row first_of(int rank) const { return shuffled(first, rank, W); }
    __device__ __forceinline__ Row last_of(int rank) const { return shuffled(last, rank, W); }
    Row first, last;
};

// Rows travel through shared memory, in two places in turn so that one barrier an exchange is enough: who
// writes a place again has passed the barrier of the exchange between.
template <int G, int L>
struct ByShared {
    template <int span>
    __device__ __forceinline__ void publish(Row row, Row, int rank) {
        turn ^= 1;
        if (rank % span == 0 || rank % span == span - 1) {
            places[turn][0][threadIdx.x] = row.l;
            places[turn][1][threadIdx.x] = row.r;
            places[turn][2][threadIdx.x] = row.d;
        }
        meet<G>();
    }
    __device__ __forceinline__ Row first_of(int rank) const {
        const int thread = threadIdx.x / G * G + rank;
        return {places[turn][0][thread], places[turn][1][thread], places[turn][2][thread]};
    }
    __device__ __forceinline__ Row last_of(int rank) const { return first_of(rank); }
    // The value of the thread before; its own at rank 0.
    __device__ __forceinline__ float before(float value, int rank) {
        turn ^= 1;
        places[turn][0][threadIdx.x] = value;
        meet<G>();
        return places[turn][0][rank > 0 ? threadIdx.x - 1 : threadIdx.x];
    }
    float (*places)[3][L];
    int turn = 0;
};

// Joins blocks of `span` threads, r at a time, until G threads are one block. A thread holds K rows: one of
// its block, or the block's first and last where the thread stands for a whole warp.
template <int G, int r, int span = 1, int K, class Exchange>
__device__ __forceinline__ void wang_mou(Row (&rows)[K], int rank, Exchange& exchange) {
    if constexpr (span < G) {
        constexpr int R = r < G / span ? r : G / span;
        exchange.template publish<span>(rows[0], rows[K - 1], rank);
        const int base = rank & ~(span * R - 1), mine = rank / span % R;
        Row first[R], last[R];
#pragma unroll
        for (int block = 0; block < R; ++block) {
            if (block > 0) first[block] = exchange.first_of(base + block * span);
            if (block == R - 1) continue;
            const bool same = span == 1 && K == 1 && block > 0;
            last[block] = same ? first[block] : exchange.last_of(base + block * span + span - 1);
        }
#pragma unroll
        for (int half = 1; half < R; half *= 2) {
#pragma unroll
            for (int left = 0; left < R; left += 2 * half) {
                const int right = left + half, end = right + half - 1;
                Row& at_left = last[right - 1];
                Row& at_right = first[right];
                join(at_left, at_right);
                if (left > 0) first[left] = in_left(first[left], at_right);
                if (end < R - 1) last[end] = in_right(last[end], at_left);
                if ((mine & ~(2 * half - 1)) != left) continue;
#pragma unroll
                for (int k = 0; k < K; ++k)
                    rows[k] = mine & half ? in_right(rows[k], at_left) : in_left(rows[k], at_right);
            }
        }
        wang_mou<G, r, span * R>(rows, rank, exchange);
    }
}

// Leaves row i as x_i = d_i - a_i x_left - c_i x_(i+1), where x_left is the unknown before the thread's first.
// Returns the first unknown by x_left and the thread's last unknown.
template <int P>
__device__ __forceinline__ Row eliminate(float (&a)[P], const float (&b)[P], float (&c)[P], float (&d)[P]) {
    const float k = reciprocal(b[0]);
    a[0] *= k, c[0] *= k, d[0] *= k;
#pragma unroll
    for (int i = 1; i < P; ++i) {
        const float k = reciprocal(b[i] - a[i] * c[i - 1]);
        d[i] = (d[i] - a[i] * d[i - 1]) * k;
        a[i] *= -a[i - 1] * k;
        c[i] *= k;
    }
    Row first = {a[P - 2], c[P - 2], d[P - 2]};
#pragma unroll
    for (int i = P - 3; i >= 0; --i) first = {a[i] - c[i] * first.l, -c[i] * first.r, d[i] - c[i] * first.d};
    return first;
}

struct Solution {
    float left, last;  // the unknown before the thread's first, and the thread's last
};

// Solves the reduced system in shared memory. `first` and `last` are the thread's end rows; `last` reaches to
// the first unknown of the next thread.
template <int G, int L, int r>
__device__ __forceinline__ Solution solve_by_shared(Row first, Row last) {
    __shared__ float places[2][3][L];
    const int rank = threadIdx.x % G;
    ByShared<G, L> threads{places};
    threads.template publish<1>(first, first, rank);
    Row next = threads.first_of(rank < G - 1 ? rank + 1 : rank);
    join(last, next);
    Row row[1] = {last};
    wang_mou<G, r>(row, rank, threads);
    return {threads.before(row[0].d, rank), row[0].d};
}

// The same by shuffles: every warp joins its lanes, leaves its two end rows in shared memory, and joins all
// the warps of its problem itself. A warp's last row keeps reaching to the first unknown of the next warp.
template <int G, int L, int r>
__device__ __forceinline__ Solution solve_by_shuffles(Row first, Row last) {
    constexpr int W = G < kWarp ? G : kWarp;
    constexpr int warps = G / W;  // that share a problem
    const int lane = threadIdx.x % W;
    Row next = shuffled(first, lane < W - 1 ? lane + 1 : lane, W);
    Row row[1] = {last};
    if (warps == 1 || lane < W - 1) join(row[0], next);
    ByShuffle<W> lanes;
    wang_mou<W, r>(row, lane, lanes);
    float left = 0.0f, value = row[0].d;
    if constexpr (warps > 1) {
        __shared__ Row ends[L / kWarp][2];
        const int warp = threadIdx.x / kWarp, mine = warp % warps;
        if (lane == 0) ends[warp][0] = in_left(first, row[0]);
        if (lane == kWarp - 1) ends[warp][1] = row[0];
        __syncthreads();
        const int other = lane % warps;
        Row both[2] = {ends[warp - mine + other][0], ends[warp - mine + other][1]};
        ByShuffle<warps> leaders;
        wang_mou<warps, r>(both, other, leaders);
        left = __shfl_sync(kAllLanes, both[1].d, mine > 0 ? mine - 1 : 0, warps);
        const float right = __shfl_sync(kAllLanes, both[0].d, mine < warps - 1 ? mine + 1 : mine, warps);
        value -= row[0].l * left + row[0].r * right;
    }
    const float before = __shfl_up_sync(kAllLanes, value, 1, W);
    return {warps > 1 && lane == 0 ? left : before, value};
}

// Solves `batch` systems a_i x_(i-1) + b_i x_i + c_i x_(i+1) = d_i of N rows; a_0 and c_(N-1) count as 0.
//   P  rows per thread                L  threads per block (P L a multiple of N)
//   r  blocks joined per exchange     shuffle  exchange within warps by shuffles
//   S  elements of the block in shared memory at a time: rows of the reduced system (all with shuffle false,
//      two per warp or none with shuffle true), or P L where each array passes through it on its way between
//      memory and registers, so that accesses to memory are coalesced whatever P
// All arrays are aligned to 16 bytes.
template <int N, int P, int L, int r, int S, bool shuffle>
__global__ void __launch_bounds__(L, 1)
    tridiag_wm(const float* __restrict__ a, const float* __restrict__ b, const float* __restrict__ c,
               const float* __restrict__ d, float* __restrict__ x, int batch) {
    constexpr int G = N / P;
    constexpr bool staged = P > 4 && S == P * L;
    static_assert(P * L % N == 0, "a block holds whole problems");
    static_assert(staged || S == (!shuffle ? L : G > kWarp ? L / 16 : 0), "S is one of the amounts named above");
    __shared__ float4 tiles[staged ? S / 4 : 1];

    const int rank = threadIdx.x % G, lane = threadIdx.x % kWarp;
    float4* const tile = tiles + threadIdx.x / kWarp * (staged ? 8 * P : 0);
    constexpr int stride = staged ? 4 * kWarp : kVector<P>;
    const size_t first = (size_t(blockIdx.x) * L + threadIdx.x - (staged ? lane : 0)) * P + (staged ? 4 * lane : 0);
    const size_t end = size_t(batch) * N;
    const int room = first < end ? int(min(end - first, size_t(kWarp * P))) : 0;

    float lower[P], diagonal[P], upper[P], right[P];
    load<P>(a + first, stride, room, 0.0f, lower);
    load<P>(b + first, stride, room, 1.0f, diagonal);  // beyond the batch: rows of the identity
    load<P>(c + first, stride, room, 0.0f, upper);
    load<P>(d + first, stride, room, 0.0f, right);
    if constexpr (staged) {
        striped_to_blocked<P>(lower, tile, lane);
        striped_to_blocked<P>(diagonal, tile, lane);
        striped_to_blocked<P>(upper, tile, lane);
        striped_to_blocked<P>(right, tile, lane);
    }
    if (rank == 0) lower[0] = 0.0f;
    if (rank == G - 1) upper[P - 1] = 0.0f;

    const Row head = eliminate<P>(lower, diagonal, upper, right);
    const Row tail = {lower[P - 1], upper[P - 1], right[P - 1]};
    Solution ends;
    if constexpr (shuffle)
        ends = solve_by_shuffles<G, L, r>(head, tail);
    else
        ends = solve_by_shared<G, L, r>(head, tail);
    right[P - 1] = ends.last;
#pragma unroll
    for (int i = P - 2; i >= 0; --i) right[i] -= lower[i] * ends.left + upper[i] * right[i + 1];
    if constexpr (staged) blocked_to_striped<P>(right, tile, lane);
    store<P>(x + first, stride, room, right);
}
