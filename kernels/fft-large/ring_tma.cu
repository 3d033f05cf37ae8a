// The single launch of ring.cu, whose tiles are brought to shared memory by the copy engine. A block asks for its next
// tile while it works on the present one, late or early as in tma.cu, if what stands there is complete by then; it does
// not wait for that with a job unfinished, so that tickets.cuh's argument holds. `slots` is
// aligned to 128 bytes. sm_90.
#include "passes.cuh"
#include "signals.cuh"
#include "tensor.cuh"
#include "tickets.cuh"

template <int N, int M, int C1, int P1, int r1, int C2, int P2, int r2, bool early, bool inverse, int blocks>
__global__ void __launch_bounds__(M * C1 / P1, blocks)
    ring_tma(const __grid_constant__ TensorMap map, const float2* __restrict__ x, float2* slots,
             float2* __restrict__ y, unsigned* counters, int batch, int count, int most_lag) {
    using First = Columns<M, N / M, C1, P1, r1, 1, C2, early, inverse>;
    using Second = Rows<N, N / M, 1, C2, P2, r2, early, inverse>;
    static_assert(First::L == Second::L, "the passes have blocks of the same size");
    static_assert(First::Tile::Stages::count > 1 && Second::Tile::Stages::count > 1, "a transform has barriers");
    constexpr int bytes = N / M * C2 * sizeof(float2);  // of a tile of the second pass
    static_assert(bytes % kLineBytes == 0, "tiles of the second pass are whole lines");
    extern __shared__ __align__(128) float2 shared[];
    __shared__ unsigned long long arrived;
    __shared__ unsigned drawn;
    auto* const room = reinterpret_cast<typename First::Tile::Word*>(shared + (early ? larger(M * C1, N / M * C2) : 0));
    const Ledger ledger = ledger_in(counters, batch);
    const int lag = smaller(most_lag, batch);
    const bool leads = threadIdx.x == 0;

    const auto job_at = [&](unsigned ticket) { return job_of<First::tiles, Second::tiles>(ticket, batch, lag); };
    const auto tile_of = [&](const Job& job) {
        return slots + (long long)(job.problem % count) * N + job.tile * (N / M * C2);
    };
    const auto ask = [&](const Job& job) {
        if (job.second) {
            show_to_copies();
            fetch(shared, tile_of(job), bytes, &arrived);
        } else {
            fetch_tile<M, C1, N / M, true>(shared, map, x, job.problem * M, job.tile * C1, &arrived);
        }
    };

    unsigned* done = nullptr;  // where the last job is to be counted
    bool asked = false;        // whether the tile of the job at hand has been asked for
    unsigned phase = 0, next = 0;
    if (leads) {
        make_barrier(&arrived);
        drawn = atomicAdd(ledger.drawn, 1u);
        next = atomicAdd(ledger.drawn, 1u);
    }
    while (true) {
        __syncthreads();  // behind all stores of the last job, and its reads of shared memory
        if (leads && done) announce(done);
        const Job job = job_at(drawn);
        if (job.problem >= batch) return;
        unsigned upcoming = 0;
        if (leads) {
            if (!asked) {
                if (job.second) wait_for(ledger.first_done + job.problem, First::tiles);
                ask(job);
            }
            upcoming = atomicAdd(ledger.drawn, 1u);
        }
        asked = false;
        const auto ask_for_next = [&] {
            if (!leads || asked) return;
            const Job following = job_at(next);
            asked = following.problem < batch &&
                    !(following.second && !announced(ledger.first_done + following.problem, First::tiles));
            if (asked) ask(following);
        };
        const auto read = [&] {
            if (!early) return;
            __syncthreads();
            ask_for_next();
        };
        const auto freed = [&] {
            if (!early) __syncthreads();
            ask_for_next();
        };
        await(&arrived, phase);
        phase ^= 1;
        if (job.second) {
            float2 v[P2];
            Second::template load<false>(v, shared);
            read();
            char* const lines = reinterpret_cast<char*>(tile_of(job));
            for (int i = threadIdx.x * kLineBytes; i < bytes; i += Second::L * kLineBytes) discard_line(lines + i);
            tile_fft<typename Second::Tile>(v, threadIdx.x, room, !early, freed);
            Second::template store<true>(v, y + (long long)job.problem * N, job.tile);
        } else {
            float2 v[P1];
            First::load_tile(v, shared);
            read();
            if (leads && job.problem >= count) wait_for(ledger.second_done + job.problem - count, Second::tiles);
            tile_fft<typename First::Tile>(v, threadIdx.x, room, !early, freed);
            First::store(v, slots + (long long)(job.problem % count) * N, job.tile);
        }
        done = (job.second ? ledger.second_done : ledger.first_done) + job.problem;
        if (leads) {
            drawn = next;
            next = upcoming;
        }
    }
}
