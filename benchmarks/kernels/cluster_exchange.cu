// What the cluster form of fft-large does, piece by piece, for cluster_exchange.py. The pieces are that kernel's own.
#include "cluster.cu"

// How much is done between the loads and the stores of a problem
enum class Until {
    copied,     // nothing
    met,        // the cluster meets twice
    exchanged,  // and the blocks send each other their points
    shuffled,   // and points change hands within blocks as often as in the transform: all but the arithmetic
};

// The shape of fft-large with parts of 4 bytes in a room of their own, in which all recorded answers exchange columns
template <int N, int N1, int P, int B, Order order>
using WholeShape = Shape<N, N1, P, B, P, order, 4>;

// Rows of the room begin where lanes across the rows find points in different banks: they store what they read there.
template <class Whole, bool wide>
struct DirectShape : Whole {
    static constexpr int received = Whole::N2 + larger(wide ? 2 : 1, 16 / Whole::rows);
    static_assert(received <= Whole::pitch, "rows fit in the room");
};

template <class Whole, bool direct, bool wide>
struct ShapeOf {
    using type = Whole;
};
template <class Whole, bool wide>
struct ShapeOf<Whole, true, wide> {
    using type = DirectShape<Whole, wide>;
};

template <class Here>
__device__ __forceinline__ void load(float2 (&v)[Here::P], const float2* __restrict__ x, unsigned t, unsigned own) {
    constexpr int C = Here::columns;
    const float2* const from = x + t / C * Here::N2 + own * C + t % C;
#pragma unroll
    for (int j = 0; j < Here::P; ++j) v[j] = from[j * Here::G1 * Here::N2];
}

template <class Here>
__device__ __forceinline__ void store(const float2 (&v)[Here::P], float2* __restrict__ y, unsigned t, unsigned own) {
    constexpr int C = Here::rows;
    float2* const to = y + own * C + t % C + t / C * Here::N1;
#pragma unroll
    for (int j = 0; j < Here::P; ++j) to[j * Here::G2 * Here::N1] = v[j];
}

// Of the stages from `stage` on, what block_fft does between their butterflies
template <class Fft, int stage = 0, int Ns = 1>
__device__ __forceinline__ void exchanges(float2 (&v)[Fft::P], unsigned t, typename Fft::Word* room, bool in_use) {
    if constexpr (stage + 1 < Fft::Stages::count) {
        constexpr int R = Fft::Stages::at(stage);
        if constexpr (sizeof(typename Fft::Word) == sizeof(float2)) {
            exchange<Fft, Ns, R>(v, t, room, in_use, [](float2& z) -> float2& { return z; });
        } else {
            exchange<Fft, Ns, R>(v, t, room, in_use, [](float2& z) -> float& { return z.x; });
            exchange<Fft, Ns, R>(v, t, room, true, [](float2& z) -> float& { return z.y; });
        }
        exchanges<Fft, stage + 1, Ns * R>(v, t, room, true);
    }
}

// What has come, as the stores want it
template <class Here, bool direct>
__device__ __forceinline__ void receive(float2 (&v)[Here::P], unsigned t, float2* room) {
    constexpr int C = Here::rows, G2 = Here::G2;
    const unsigned row = direct ? t % C : t / G2, g = direct ? t / C : t % G2;
    const float2* const from = room + row * Here::received + g;
#pragma unroll
    for (int j = 0; j < Here::P; ++j) v[j] = from[j * G2];
    if constexpr (!direct) {
        turn<Here>(v, t, room);
        exchanges<typename Here::Rows, 1, Here::R>(v, t / C, room + t % C, true);
    }
}

// Loads and stores of blocks that are no clusters
template <int N, int N1, int P, int B, Order order, int blocks>
__global__ void __launch_bounds__(N / (B * P), blocks) apart(const float2* __restrict__ x, float2* __restrict__ y) {
    using Here = WholeShape<N, N1, P, B, order>;
    const unsigned own = blockIdx.x % B;
    const long long problem = blockIdx.x / B * (long long)N;
    float2 v[P];
    load<Here>(v, x + problem, threadIdx.x, own);
    store<Here>(v, y + problem, threadIdx.x, own);
}

template <int N, int N1, int P, int B, Order order, Until until, bool wide, bool async, int blocks>
__global__ void __cluster_dims__(B, 1, 1) __launch_bounds__(N / (B * P), blocks)
    pieces(const float2* __restrict__ x, float2* __restrict__ y) {
    constexpr bool meets = until != Until::copied, sends = meets && until != Until::met;
    constexpr bool direct = until != Until::shuffled;
    using Here = typename ShapeOf<WholeShape<N, N1, P, B, order>, direct, wide>::type;
    constexpr int C = Here::columns;
    extern __shared__ float4 memory[];
    const unsigned t = thread_of_block<Here::threads>(), own = block_of_cluster<Here::threads>();
    char* const part = part_of<Here::bytes>(reinterpret_cast<char*>(memory), own);
    unsigned long long* const barrier = reinterpret_cast<unsigned long long*>(part);
    const long long problem = this_cluster<B>() * (long long)N;

    if (async && t == 0) {
        make_barrier(barrier);
        expect(barrier, N / B * sizeof(float2));
    }
    __syncwarp();
    if (meets) cluster_arrive<false>();
    float2 v[P];
    load<Here>(v, x + problem, t, own);
    if constexpr (!direct)
        exchanges<typename Here::Columns>(v, t / C, reinterpret_cast<float*>(part + Here::scratch_place) + t % C, false);
    if (meets) cluster_wait();
    if constexpr (sends) send<Here, wide, async>(v, t / C, own * C + t % C, own, part);
    if (meets && !async) cluster_arrive<true>();
    if (async)
        await(barrier, 0);
    else if (meets)
        cluster_wait();
    if constexpr (sends) receive<Here, direct>(v, t, reinterpret_cast<float2*>(part + Here::counter_bytes));
    store<Here>(v, y + problem, t, own);
}

// Blocks that stay exchange `sends` problems between two meetings, `rounds` times. What the last one left is stored:
// of point (row, column) of a cluster's problem, those numbers. `nothing` is 0, which the compiler does not know.
template <int N, int N1, int P, int B, Order order, bool wide, bool async, int sends, int blocks>
__global__ void __cluster_dims__(B, 1, 1) __launch_bounds__(N / (B * P), blocks)
    exchange_alone(float2* __restrict__ y, int rounds, int nothing) {
    using Here = WholeShape<N, N1, P, B, order>;
    constexpr int C = Here::columns;
    extern __shared__ float4 memory[];
    const unsigned t = thread_of_block<Here::threads>(), own = block_of_cluster<Here::threads>();
    const unsigned column = own * C + t % C;
    unsigned g = t / C;
    char* part = part_of<Here::bytes>(reinterpret_cast<char*>(memory), own);
    unsigned long long* const barrier = reinterpret_cast<unsigned long long*>(part);
    float2 v[P];
#pragma unroll
    for (int j = 0; j < P; ++j) v[j] = make_float2(g + j * Here::G1, column);
    if (async && t == 0) make_barrier(barrier);
    for (int round = 0; round < rounds; ++round) {
        __syncwarp();
        cluster_arrive<false>();
        cluster_wait();
        if (async && t == 0) expect(barrier, sends * (N / B) * sizeof(float2));
#pragma unroll 1
        for (int k = 0; k < sends; ++k) {
            // Places are computed anew, as for a problem that comes; kept from before the loop, they spill.
            g += nothing, part += nothing;
            send<Here, wide, async>(v, g, column, own, part);
        }
        if (async) {
            await(barrier, round & 1);
        } else {
            cluster_arrive<true>();
            cluster_wait();
        }
    }
    const float2* const room = reinterpret_cast<const float2*>(part + Here::counter_bytes);
    float2* const to = y + this_cluster<B>() * (long long)N + own * (N / B);
    for (unsigned i = t; i < N / B; i += Here::threads) to[i] = room[i / Here::N2 * Here::received + i % Here::N2];
}

// Blocks that stay meet `rounds` times. Every block stores how often.
template <int B, int threads, bool in_order, int blocks>
__global__ void __cluster_dims__(B, 1, 1) __launch_bounds__(threads, blocks) meet_alone(float2* y, int rounds) {
    int met = 0;
    for (; met < rounds; ++met) {
        cluster_arrive<in_order>();
        cluster_wait();
    }
    if (threadIdx.x == 0) y[blockIdx.x] = make_float2(met, 0);
}
