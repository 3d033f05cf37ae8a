// Tridiagonal systems by the divide and conquer of Wang and Mou.
// "Performance Tuning for GPU-Embedded Systems", sections III and V-A and Fig. 2; X. Wang and Z. G. Mou, "A
// divide-and-conquer method of solving tridiagonal systems on hypercube massively parallel computers", IPDPS 1991.
//
// The method keeps every unknown of a block of threads as a function of the two unknowns just outside; where two
// blocks meet, the last equation of the left one and the first of the right one eliminate the two unknowns at the
// joint. r blocks are joined at each exchange, in log2(r) levels within the registers. When one block is left nothing
// is outside.
#include "tridiag_solve.cuh"

// Joins blocks of `span` threads, r at a time, until G threads are one block. A thread holds K rows: one of
// its block, or the block's first and last where the thread stands for a whole warp.
template <int G, int r, int span = 1, class T, int K, class Exchange>
__device__ __forceinline__ void wang_mou(Row<T> (&rows)[K], int rank, Exchange& firsts, Exchange& lasts) {
    if constexpr (span < G) {
        constexpr int R = r < G / span ? r : G / span;
        firsts.publish(rows[0], rank % span == 0 || rank % span == span - 1);
        if constexpr (K > 1) lasts.publish(rows[K - 1]);
        const int base = rank & ~(span * R - 1), mine = rank / span % R;
        Row<T> first[R], last[R];
#pragma unroll
        for (int block = 0; block < R; ++block) {
            if (block > 0) first[block] = firsts.template of<Row<T>>(base + block * span);
            if (block == R - 1) continue;
            const bool same = span == 1 && K == 1 && block > 0;
            last[block] = same ? first[block] : lasts.template of<Row<T>>(base + block * span + span - 1);
        }
#pragma unroll
        for (int half = 1; half < R; half *= 2) {
#pragma unroll
            for (int left = 0; left < R; left += 2 * half) {
                const int right = left + half, end = right + half - 1;
                Row<T>& at_left = last[right - 1];
                Row<T>& at_right = first[right];
                join(at_left, at_right);
                if (left > 0) first[left] = in_left(first[left], at_right);
                if (end < R - 1) last[end] = in_right(last[end], at_left);
                if ((mine & ~(2 * half - 1)) != left) continue;
#pragma unroll
                for (int k = 0; k < K; ++k)
                    rows[k] = mine & half ? in_right(rows[k], at_left) : in_left(rows[k], at_right);
            }
        }
        wang_mou<G, r, span * R>(rows, rank, firsts, lasts);
    }
}

template <class T, int G, int L, int r, bool shuffle>
struct WangMou {
    static constexpr int elements = !shuffle ? L : G > kWarp ? 2 * L / kWarp : 0;  // equations in shared memory

    static __device__ __forceinline__ Solution<T> solve(Row<T> first, Row<T> last) {
        if constexpr (shuffle)
            return by_shuffles(first, last);
        else
            return by_shared(first, last);
    }

    static __device__ __forceinline__ Solution<T> by_shared(Row<T> first, Row<T> last) {
        __shared__ T places[2][3][L];
        const int rank = threadIdx.x % G;
        ByShared<T, G, L> threads{places};
        threads.publish(first);
        Row<T> next = threads.template of<Row<T>>(rank + 1), row[1] = {last};
        join(row[0], next);
        wang_mou<G, r>(row, rank, threads, threads);
        threads.publish(row[0].d);
        return {threads.template of<T>(rank + G - 1), row[0].d};
    }

    // Every warp joins its lanes, leaves its two end rows in shared memory, and joins all the warps of its system
    // itself. A warp's last row keeps reaching to the first unknown of the next warp.
    static __device__ __forceinline__ Solution<T> by_shuffles(Row<T> first, Row<T> last) {
        constexpr int W = G < kWarp ? G : kWarp;
        constexpr int warps = G / W;  // that share a system
        const int lane = threadIdx.x % W;
        ByShuffle<T, W> lanes;
        lanes.publish(first);
        Row<T> next = lanes.template of<Row<T>>(lane + 1), row[1] = {last};
        if (warps == 1 || lane < W - 1) join(row[0], next);
        wang_mou<W, r>(row, lane, lanes, lanes);
        T left = T{}, value = row[0].d;
        if constexpr (warps > 1) {
            __shared__ Row<T> ends[L / kWarp][2];
            const int warp = threadIdx.x / kWarp, mine = warp % warps;
            if (lane == 0) ends[warp][0] = in_left(first, row[0]);
            if (lane == kWarp - 1) ends[warp][1] = row[0];
            __syncthreads();
            const int other = lane % warps;
            Row<T> both[2] = {ends[warp - mine + other][0], ends[warp - mine + other][1]};
            ByShuffle<T, warps> firsts, lasts;
            wang_mou<warps, r>(both, other, firsts, lasts);
            left = of_lane(both[1].d, mine + warps - 1, warps);
            const T right = of_lane(both[0].d, mine + 1, warps);
            value -= row[0].l * left + row[0].r * right;
        }
        const T before = of_lane_before(value, W);
        return {warps > 1 && lane == 0 ? left : before, value};
    }
};

// One thread solves P rows of a system, a block of L threads P L / M systems (M: N up to a power of two).
//   r        blocks joined per exchange
//   shuffle  exchange within warps by shuffles
//   S        elements of the block in shared memory at a time: P L where rows pass it on their way between
//            memory and registers, else the rows of the reduced system that threads exchange through it
//   blocks   that a multiprocessor is to hold at least, which bounds the registers
// Arrays are aligned to 16 bytes.
template <class T, int N, int P, int L, int r, int S, bool shuffle, Access load, Access store, int blocks,
          int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    tridiag_wm(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
               const T* __restrict__ d, T* __restrict__ x, int batch, RowLayout<5, aligned, in_place> layout) {
    using Here = Shape<T, N, P, L, next_pow2(N), decltype(layout)>;
    using Method = WangMou<T, Here::G, L, r, shuffle>;
    static_assert(S == (tile_elements<Here>(load, store) ? P * L : Method::elements), "S is one of the amounts above");
    solve_systems<Here, load, store, Method>(a, b, c, d, x, batch, layout);
}
