// Long complex transforms of the rows of x, shape (batch, N), out of place, in one launch whose blocks do the jobs of
// both passes (passes.cuh) in the order of tickets.cuh. Between the passes a problem lies in a ring of a few slots that
// the second-level cache holds: x is read and y is written with hints to leave the cache soon, and what a second pass
// has read is discarded, so that of the ring next to nothing goes to device memory. sm_80.
//
// counters, 1 + 2 batch of them, are zero when the launch begins; `slots` is aligned to 128 bytes. Tunables: those of
// the passes, which have blocks of the same size; slots of the ring, and by how many problems the second passes lag
// behind.
#include "passes.cuh"
#include "signals.cuh"
#include "tickets.cuh"

template <int N, int M, int C1, int P1, int r1, int C2, int P2, int r2, bool inverse, int blocks>
__global__ void __launch_bounds__(M * C1 / P1, blocks)
    ring(const float2* __restrict__ x, float2* slots, float2* __restrict__ y, unsigned* counters, int batch, int count,
         int most_lag) {
    using First = Columns<M, N / M, C1, P1, r1, 1, C2, false, inverse>;
    using Second = Rows<N, N / M, 1, C2, P2, r2, false, inverse>;
    static_assert(First::L == Second::L, "the passes have blocks of the same size");
    static_assert(N / M * C2 * 8 % kLineBytes == 0, "tiles of the second pass are whole lines");
    static_assert(First::Tile::Stages::count > 1 && Second::Tile::Stages::count > 1, "a transform has barriers");
    extern __shared__ float2 shared[];
    __shared__ unsigned drawn;
    const Ledger ledger = ledger_in(counters, batch);
    const int lag = smaller(most_lag, batch);
    const bool leads = threadIdx.x == 0;

    unsigned* done = nullptr;  // where the last job is to be counted
    if (leads) drawn = atomicAdd(ledger.drawn, 1u);
    while (true) {
        __syncthreads();  // behind all stores of the last job, and its reads of shared memory
        if (leads && done) announce(done);
        const Job job = job_of<First::tiles, Second::tiles>(drawn, batch, lag);
        if (job.problem >= batch) return;
        const unsigned next = leads ? atomicAdd(ledger.drawn, 1u) : 0;
        float2* const slot = slots + (long long)(job.problem % count) * N;
        if (job.second) {
            float2* const tile = slot + job.tile * (N / M * C2);
            if (leads) wait_for(ledger.first_done + job.problem, First::tiles);
            __syncthreads();
            float2 v[P2];
            Second::template load<true>(v, tile);
            tile_fft<typename Second::Tile>(v, threadIdx.x, shared, false, [&] {
                // behind a barrier that was behind all of the block's loads
                for (int i = threadIdx.x * kLineBytes; i < N / M * C2 * 8; i += Second::L * kLineBytes)
                    discard_line(reinterpret_cast<char*>(tile) + i);
            });
            Second::template store<true>(v, y + (long long)job.problem * N, job.tile);
        } else {
            float2 v[P1];
            First::template load<true>(v, x + (long long)job.problem * N, job.tile);
            if (leads && job.problem >= count) wait_for(ledger.second_done + job.problem - count, Second::tiles);
            tile_fft<typename First::Tile>(v, threadIdx.x, shared, false, [] {});  // its barriers tell the others
            First::store(v, slot, job.tile);
        }
        done = (job.second ? ledger.second_done : ledger.first_done) + job.problem;
        if (leads) drawn = next;
    }
}
