// Segments that offsets tell, as in a CSR matrix: of each tile, who reads it finds the offsets by a search, and sets a bit
// for each element at which a segment begins.
#pragma once
#include "segments.cuh"

// As HeldFlagged of segments.cuh, with bits.
template <class Op, class Shape>
struct HeldMarked {
    static constexpr bool marked = true;
    static constexpr int behind = 0, spare = Shape::size / 8, together = Shape::reverse ? 1 : 2;
    using Value = SegmentItems<Op, Shape, 1>;
    using Before = BeforePacks<Op, Shape>;
};

// Reads elements; take_heads does the rest.
template <class Op, class Shape, class Of, class In>
__device__ __forceinline__ void read_tile(long long room, SegmentItems<Of, Shape, 1>& value, int rank,
                                          const In* __restrict__ tile) {
    read_tile<Of, Shape>(inside<Shape>(room), value.at, rank, tile);
}

// The threads of a block, and of a warp, that search and mark together.
template <int L>
struct BlockTeam {
    static constexpr int size = L;
    static __device__ __forceinline__ int rank() { return threadIdx.x; }
    static __device__ __forceinline__ int count(bool vote) { return __syncthreads_count(vote); }
    static __device__ __forceinline__ void meet() { __syncthreads(); }
};
struct WarpTeam {
    static constexpr int size = kWarp;
    static __device__ __forceinline__ int rank() { return threadIdx.x % kWarp; }
    static __device__ __forceinline__ int count(bool vote) {
        __syncwarp();
        return __popc(__ballot_sync(kAllLanes, vote));
    }
    static __device__ __forceinline__ void meet() { __syncwarp(); }
};

// How many of `count` offsets, which never fall, are below `bound`; a team searches, and meets at least once.
template <class Team, class Offset>
__device__ __forceinline__ long long offsets_below(const Offset* __restrict__ offsets, long long count, long long bound) {
    constexpr int L = Team::size;
    long long low = 0, high = count;
    do {
        const long long step = high - low > L ? (high - low + L - 1) / L : 1;
        const long long probe = low + (Team::rank() + 1) * step - 1;
        low += Team::count(probe < high && offsets[probe] < bound) * step;
        if (high > low + step - 1) high = low + step - 1;
    } while (low < high);
    return low;
}

// Sets the bits of a tile's elements at which segments begin, as heads_of has it; `begin` is the tile's first element in
// its row. The team meets before and after.
template <class Shape, class Team, class Offset>
__device__ __forceinline__ void mark_segments(unsigned* bits, const Offset* __restrict__ offsets, long long count,
                                              long long begin) {
    constexpr int kAtOnce = 4;
    const long long bound = begin + Shape::reverse;
    for (int i = Team::rank(); i < Shape::size / 32; i += Team::size) bits[i] = 0;
    const long long first = offsets_below<Team>(offsets, count, bound);
    for (long long from = first + Team::rank(); from < count; from += kAtOnce * Team::size) {
        long long at[kAtOnce];
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k) {
            const long long i = from + k * Team::size;
            at[k] = i < count ? offsets[i] - bound : Shape::size;
        }
#pragma unroll
        for (int k = 0; k < kAtOnce; ++k)
            if (at[k] >= 0 && at[k] < Shape::size) atomicOr(&bits[at[k] / 32], 1u << at[k] % 32);
        if (at[kAtOnce - 1] >= Shape::size) break;
    }
    Team::meet();
}

// Where segments begin in a thread's packs, from such bits.
template <class Op, class Shape>
__device__ __forceinline__ void take_heads(SegmentItems<Op, Shape, 1>& value, const unsigned* bits,
                                           int rank = threadIdx.x) {
    constexpr int E = Shape::E;
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
        const int place = Shape::place(v, rank);
        const unsigned pack = bits[place / 32] >> place % 32;  // a pack lies in a word
        value.heads[v].word = Shape::reverse ? __brev(pack) >> (32 - E) : pack;
    }
}

// Marks the segments of a tile of a pipeline, for a warp.
template <class Shape, class Offset>
struct MarkSegments {
    const Offset* offsets;
    long long ends;

    __device__ __forceinline__ void operator()(const Rows<Shape>& rows, unsigned tile, unsigned* bits) const {
        mark_segments<Shape, WarpTeam>(bits, offsets + rows.row(tile) * ends, ends, rows.within(tile));
    }
};
