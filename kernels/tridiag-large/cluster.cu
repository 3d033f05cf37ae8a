// Long tridiagonal systems that a thread-block cluster holds in its registers, in one pass over device memory: each of
// B blocks reduces a tile of P L rows to two equations and sends them to all blocks, through distributed shared memory.
// Each warp then solves the system of these by itself, and the blocks expand their tiles.
//
// Blocks meet before they send, when all have started, and before they read what the others sent.
#include "clusters.cuh"
#include "tile.cuh"

// Shared memory of a block: the equations of all tiles, those of its warps, and the tiles of its warps
template <class Shape, Access loading, Access storing>
struct Memory {
    using T = typename Shape::T;
    static constexpr int warps = Shape::L / kWarp, B = Shape::tiles;
    static constexpr int head = (sizeof(Ends<T>) * (B + warps) + 15) / 16 * 16;
    static constexpr int of_warp = tile_elements<Shape>(loading, storing);
    static constexpr int bytes = head + warps * of_warp * sizeof(T);

    __device__ __forceinline__ Ends<T>* received() const { return reinterpret_cast<Ends<T>*>(part); }
    __device__ __forceinline__ Ends<T>* places() const { return received() + B; }
    __device__ __forceinline__ T* tile(unsigned warp) const {
        return reinterpret_cast<T*>(part + head) + warp * of_warp;
    }
    char* part;
};

// Sends the equations of this block's tile to all blocks: lane k of the first warp to block k.
template <class Memory, class T>
__device__ __forceinline__ void send(Memory memory, Ends<T> ends, unsigned t, unsigned own) {
    if (t < Memory::B) {
        const Remote there = in_block<Memory::bytes>(memory.received() + own, own, t);
#pragma unroll
        for (int i = 0; i < int(sizeof(ends) / sizeof(float2)); ++i)
            put<false>(there + i * sizeof(float2), reinterpret_cast<const float2*>(&ends)[i], there);
    }
}

// The unknowns before block `own`'s tile and at its end, from the equations of all tiles
template <int B, class T>
__device__ __forceinline__ Solution<T> solved(const Ends<T>* received, unsigned own) {
    constexpr int W = next_pow2(B);
    const int rank = threadIdx.x % W;
    Ends<T> ends = {};
    if (rank < B) ends = received[rank];
    ByShuffle<T, W> lanes;
    const T value = Reduced<T, ParallelCyclicReduction, W, W, true>::template solve_closed<W>(ends.first, ends.last,
                                                                                           rank, lanes);
    const T before = of_lane(value, own + W - 1, W);
    return {own > 0 ? before : T{}, of_lane(value, own, W)};
}

template <class T, int N, int P, int L, int B, Access load, Access store, int blocks, int aligned, bool in_place>
__global__ void __cluster_dims__(B, 1, 1) __launch_bounds__(L, blocks)
    solve_clusters(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, const T* __restrict__ d,
                   T* __restrict__ x, int batch, RowLayout<5, aligned, in_place> layout) {
    using Here = Shape<T, N, P, L, P * L, decltype(layout)>;
    static_assert(Here::tiles == B, "a block has a tile");
    extern __shared__ float4 shared[];
    const unsigned t = thread_of_block<L>(), own = block_of_cluster<L>();
    const unsigned block = this_cluster<B>() * B + own;
    using Room = Memory<Here, load, store>;
    const Room memory{part_of<Room::bytes>(reinterpret_cast<char*>(shared), own)};
    cluster_arrive<false>();
    T rows[4][P];
    const T* const right = layout.source(d, x);
    const Row<T> first =
        eliminated_tile<Here, load>({a, b, c, right}, batch, block, memory.tile(t / kWarp), rows, layout);
    TileReduction<T, L> tile;
    const Ends<T> ends = tile.reduce(first, {rows[0][P - 1], rows[2][P - 1], rows[3][P - 1]}, memory.places());
    __syncwarp();  // the barriers of a cluster want whole warps
    cluster_wait();  // all have started
    send(memory, tile.told_to_all(ends), t, own);
    __syncwarp();  // the barriers of a cluster want whole warps
    cluster_arrive<true>();
    cluster_wait();
    const Solution<T> known = solved<B>(memory.received(), own);
    substitute(rows[0], rows[2], rows[3], tile.expand(known.left, known.last));
    store_rows<Here, store>(x, batch, block, memory.tile(t / kWarp), rows[3], layout);
}
