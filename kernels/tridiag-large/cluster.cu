// Long tridiagonal systems that a thread-block cluster holds in its registers, in one pass over device memory: each of
// B blocks reduces a tile of P L rows to two equations and sends them to all blocks, through distributed shared memory.
// Each warp then solves the system of these by itself, and the blocks expand their tiles.
//
// Blocks meet before they send, when all have started, and before they read what the others sent.
#include "clusters.cuh"
#include "tile.cuh"

// Shared memory of a block: the equations of all tiles, those of its warps, and the tiles of its warps
template <class Shape, class D, Access loading, Access storing>
struct Memory {
    using T = typename Shape::T;
    using Equations = Ends<T, D>;
    static constexpr int warps = Shape::L / kWarp, B = Shape::tiles;
    static constexpr int head = (sizeof(Equations) * (B + warps) + 15) / 16 * 16;
    static constexpr int of_warp = tile_elements<Shape>(loading, storing);
    static constexpr int bytes = head + warps * of_warp * sizeof(T);

    __device__ __forceinline__ Equations* received() const { return reinterpret_cast<Equations*>(part); }
    __device__ __forceinline__ Equations* places() const { return received() + B; }
    __device__ __forceinline__ T* tile(unsigned warp) const {
        return reinterpret_cast<T*>(part + head) + warp * of_warp;
    }
    char* part;
};

// Sends the equations of this block's tile to all blocks: lane k of the first warp to block k.
template <class Memory>
__device__ __forceinline__ void send(Memory memory, typename Memory::Equations ends, unsigned t, unsigned own) {
    if (t < Memory::B) {
        const Remote there = in_block<Memory::bytes>(memory.received() + own, own, t);
#pragma unroll
        for (int i = 0; i < int(sizeof(ends) / sizeof(float2)); ++i)
            put<false>(there + i * sizeof(float2), reinterpret_cast<const float2*>(&ends)[i], there);
    }
}

// The unknowns before block `own`'s tile and at its end, from the equations of all tiles
template <int B, bool periodic, class T, class D>
__device__ __forceinline__ Solution<D> solved(const Ends<T, D>* received, unsigned own) {
    constexpr int W = next_pow2(B);
    const int rank = threadIdx.x % W;
    Ends<T, D> ends = {};
    if (rank < B) ends = received[rank];
    ByShuffle<T, W, D> lanes;
    if constexpr (periodic) {
        ends.last = joined(ends.first, ends.last, rank, lanes, W - B);
        ParallelCyclicReduction<W, true>::reduce(ends.last, ends.first, rank, lanes, W - B);
        const D last = closed(told_to_all(ends, B - 1));
        const D value = ParallelCyclicReduction<W, true>::expand(ends.last, last, last, rank, lanes, W - B);
        return {of_lane(value, (own + B - 1) % B, W), of_lane(value, own, W)};
    } else {
        using Method = Reduced<T, ParallelCyclicReduction, W, W, true, D>;
        const D value = Method::template solve_closed<W>(ends.first, ends.last, rank, lanes);
        const D before = of_lane(value, own + W - 1, W);
        return {own > 0 ? before : D{}, of_lane(value, own, W)};
    }
}

template <class T, int N, int P, int L, int B, Access load, Access store, int blocks, int aligned, bool in_place,
          int K = 1, bool periodic = false>
__global__ void __cluster_dims__(B, 1, 1) __launch_bounds__(L, blocks)
    solve_clusters(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c, const T* __restrict__ d,
                   T* __restrict__ x, int batch, RowLayout<5, aligned, in_place> layout) {
    using Here = Shape<T, N, P, L, P * L, decltype(layout)>;
    using D = Sides<T, K>;
    using Spot = Place<N, P * L, P, periodic>;
    static_assert(Here::tiles == B, "a block has a tile");
    extern __shared__ float4 shared[];
    const unsigned t = thread_of_block<L>(), own = block_of_cluster<L>();
    const unsigned block = this_cluster<B>() * B + own;
    using Room = Memory<Here, D, load, store>;
    const Room memory{part_of<Room::bytes>(reinterpret_cast<char*>(shared), own)};
    cluster_arrive<false>();
    SystemRows<T, P, K> rows;
    const Ends<T, D> mine = eliminated_tile<Spot, Here, load, K>(
        {a, b, c}, layout.source(d, x), batch, block, memory.tile(t / kWarp), rows, layout);
    const Spot place(block);
    TileReduction<T, L, D, Spot> tile(place);
    const Ends<T, D> ends = tile.reduce(mine.first, mine.last, memory.places());
    __syncwarp();  // the barriers of a cluster want whole warps
    cluster_wait();  // all have started
    send(memory, told_to_all(ends, tile.last_warp()), t, own);
    __syncwarp();  // the barriers of a cluster want whole warps
    cluster_arrive<true>();
    cluster_wait();
    const Solution<D> known = solved<B, periodic>(memory.received(), own);
    auto& [lower, diagonal, upper, right] = rows;
    substituted(place, lower, upper, right, tile.expand(known.left, known.last));
    store_unknowns<Here, store, K>(x, batch, block, memory.tile(t / kWarp), right, layout);
}
