// A tile of a row: L threads hold P elements each. A team of W threads - a warp where totals travel by shuffles, else
// the block - holds W P consecutive elements in chunks of W packs of E, neighbouring threads side by side, so that every
// access touches whole lines. Where a row is scanned in reverse, its tiles, packs and elements are numbered from its end.
#pragma once
#include "look_back.cuh"
#include "vectors.cuh"

// A tile's template parameters, and what follows from them.
//   P  elements per thread      L  threads per block      E  elements per access
//   shuffle    threads exchange totals by shuffles and one total of each warp through shared memory
//   exclusive  y[i] leaves x[i] out      reverse  sums begin at the end of the row
template <int P_, int L_, int E_, bool shuffle_, bool exclusive_, bool reverse_>
struct TileShape {
    static constexpr int P = P_, L = L_, E = E_, V = P / E, size = P * L;
    static constexpr bool shuffle = shuffle_, exclusive = exclusive_, reverse = reverse_;
    static constexpr int W = shuffle ? kWarp : L, warps = L / kWarp;
    static constexpr int held = shuffle ? warps : 2 * L * V;  // items in shared memory
    static_assert(P % E == 0 && L % kWarp == 0, "threads hold whole packs, blocks whole warps");

    // Where in the tile, as it lies in memory, a thread's pack v begins.
    static __device__ __forceinline__ int place(int v, int rank) {
        const int lane = rank % W, at = (rank - lane) * P + (v * W + lane) * E;
        return reverse ? size - E - at : at;
    }
    static __device__ __forceinline__ int place(int v) { return place(v, threadIdx.x); }
    static __device__ __forceinline__ int index(int v, int e) { return v * E + (reverse ? E - 1 - e : e); }
};

// What a thread holds of a tile. Where it is more, the functions below have overloads for it.
template <class Op, class Shape>
struct HeldItems {
    static constexpr int behind = 0, spare = 0;  // of a tile in shared memory: elements known behind it; spare bytes
    static constexpr int together = 2;           // parts that are worked at side by side, where there are several
    using Value = typename Op::Item[Shape::P];       // its elements, and what they become
    using Before = typename Op::Item[Shape::V];      // what stands before each of its packs
};

// Elements of an array that a thread holds of a tile.
template <class T, class Shape>
struct Part {
    T at[Shape::P];
};

template <class T, class Shape>
__device__ __forceinline__ Part<T, Shape> whole_part(const T* __restrict__ tile, int rank = threadIdx.x) {
    constexpr int E = Shape::E;
    Pack<T, E> packs[Shape::V];
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) packs[v] = *reinterpret_cast<const Pack<T, E>*>(tile + Shape::place(v, rank));
    Part<T, Shape> part;
#pragma unroll
    for (int v = 0; v < Shape::V; ++v)
#pragma unroll
        for (int e = 0; e < E; ++e) part.at[Shape::index(v, e)] = packs[v].at[e];
    return part;
}

template <class Op, class Shape, class Item, class... Elements>
__device__ __forceinline__ void read_whole(Item (&value)[Shape::P], const Part<Elements, Shape>&... parts) {
#pragma unroll
    for (int i = 0; i < Shape::P; ++i) value[i] = Op::read(parts.at[i]...);
}

// Reads the elements of a tile for the thread of a rank that are among the first `room` ones, one from each array; the
// others are the identity.
template <class Op, class Shape, class Item, class... Elements>
__device__ __forceinline__ void read_tile(long long room, Item (&value)[Shape::P], int rank,
                                          const Elements* __restrict__... tiles) {
    if (room >= Shape::size) {
        read_whole<Op, Shape>(value, whole_part<Elements, Shape>(tiles, rank)...);
        return;
    }
#pragma unroll
    for (int v = 0; v < Shape::V; ++v)
#pragma unroll
        for (int e = 0; e < Shape::E; ++e) {
            const int at = Shape::place(v, rank) + e;
            value[Shape::index(v, e)] = at < room ? Op::read(tiles[at]...) : Op::identity();
        }
}

// Writes a pack in one access: compilers that see its elements write them one by one.
template <class T, int E>
__device__ __forceinline__ void put_pack(T* to, const Pack<T, E>& pack) {
    if constexpr (sizeof(pack) == 16) {
        uint4 bits;
        memcpy(&bits, &pack, 16);
        __stwb(reinterpret_cast<uint4*>(to), bits);
    } else
        *reinterpret_cast<Pack<T, E>*>(to) = pack;
}

// Writes them likewise.
template <class Op, class Shape, class Item, class Out>
__device__ __forceinline__ void write_tile(Out* __restrict__ tile, long long room, const Item (&value)[Shape::P]) {
    constexpr int E = Shape::E;
    if (room >= Shape::size) {
#pragma unroll
        for (int v = 0; v < Shape::V; ++v) {
            Pack<Out, E> pack;
#pragma unroll
            for (int e = 0; e < E; ++e) pack.at[e] = Op::write(value[Shape::index(v, e)]);
            put_pack(tile + Shape::place(v), pack);
        }
        return;
    }
#pragma unroll
    for (int v = 0; v < Shape::V; ++v)
#pragma unroll
        for (int e = 0; e < E; ++e) {
            const int at = Shape::place(v) + e;
            if (at < room) tile[at] = Op::write(value[Shape::index(v, e)]);
        }
}

// Scans what stands in the lanes of a warp: `value` becomes what lower lanes amount to, and the total of all is returned.
template <class Op, int W, class Item>
__device__ __forceinline__ Item scan_lanes(Item& value, int lane) {
#pragma unroll
    for (int span = 1; span < W; span *= 2) {
        const Item before = shuffled(value, [=](unsigned w) { return __shfl_up_sync(kAllLanes, w, span, W); });
        if (lane >= span) value = Op::join(before, value);
    }
    const Item total = shuffled(value, [](unsigned w) { return __shfl_sync(kAllLanes, w, W - 1, W); });
    const Item before = shuffled(value, [](unsigned w) { return __shfl_up_sync(kAllLanes, w, 1, W); });
    value = lane > 0 ? before : Op::identity();
    return total;
}

// Scans a warp's chunks one after another behind `running`, and returns what it and they amount to.
template <class Op, class Shape, class Item>
__device__ __forceinline__ Item scan_chunks(Item (&total)[Shape::V], Item running) {
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
        const Item chunk = scan_lanes<Op, kWarp>(total[v], threadIdx.x % kWarp);
        total[v] = Op::join(running, total[v]);
        running = Op::join(running, chunk);
    }
    return running;
}

// Joins what stands before a warp before the sums of its chunks.
template <class Op, class Shape, class Item>
__device__ __forceinline__ void join_before(const Item& before, Item (&total)[Shape::V]) {
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) total[v] = Op::join(before, total[v]);
}

// Chunks by shuffles, then the totals of warps, of which every warp scans all.
template <class Op, class Shape, class Before, class Item>
__device__ __forceinline__ Item scan_by_shuffles(Before& total, Item* held) {
    constexpr int warps = Shape::warps;
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;
    Item running = scan_chunks<Op, Shape>(total, Op::identity());
    if constexpr (warps > 1) {
        if (lane == 0) held[warp] = running;
        __syncthreads();
        Item before = held[lane % warps];
        running = scan_lanes<Op, warps>(before, lane % warps);
        before = shuffled(before, [=](unsigned w) { return __shfl_sync(kAllLanes, w, warp, warps); });
        join_before<Op, Shape>(before, total);
    }
    return running;
}

// All chunks at a time through shared memory, in two places in turn so that one barrier is enough: who writes a place
// again has passed the barrier of the step between.
template <class Op, class Shape, class Item>
__device__ __forceinline__ Item scan_by_shared(Item (&total)[Shape::V], Item* held) {
    constexpr int L = Shape::L, V = Shape::V;
    const int rank = threadIdx.x;
    int turn = 0;
    const auto publish = [&] {
        turn ^= 1;
#pragma unroll
        for (int v = 0; v < V; ++v) held[(turn * V + v) * L + rank] = total[v];
        __syncthreads();
    };
    publish();
#pragma unroll
    for (int span = 1; span < L; span *= 2) {
#pragma unroll
        for (int v = 0; v < V; ++v)
            if (rank >= span) total[v] = Op::join(held[(turn * V + v) * L + rank - span], total[v]);
        publish();
    }
    Item running = Op::identity();
#pragma unroll
    for (int v = 0; v < V; ++v) {
        const Item* const chunk = held + (turn * V + v) * L;
        total[v] = rank > 0 ? Op::join(running, chunk[rank - 1]) : running;
        running = Op::join(running, chunk[L - 1]);
    }
    return running;
}

// Joins each pack's elements in place; `total` is what each pack amounts to.
template <class Op, class Shape, class Item>
__device__ __forceinline__ void join_packs(Item (&value)[Shape::P], Item (&total)[Shape::V]) {
    constexpr int E = Shape::E;
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
#pragma unroll
        for (int e = 1; e < E; ++e) value[v * E + e] = Op::join(value[v * E + e - 1], value[v * E + e]);
        total[v] = value[v * E + E - 1];
    }
}

// Joins each pack's elements in place, and makes `before` what the tile's elements before each pack amount to. Returns
// what all amount to, in every thread.
template <class Op, class Shape, class Value, class Before, class Item>
__device__ __forceinline__ Item scan_tile(Value& value, Before& before, Item* held) {
    join_packs<Op, Shape>(value, before);
    if constexpr (Shape::shuffle)
        return scan_by_shuffles<Op, Shape>(before, held);
    else
        return scan_by_shared<Op, Shape>(before, held);
}

// From what packs amount to, to sums of the row; `carry` is what it amounts to before the tile.
template <class Op, class Shape, class Item>
__device__ __forceinline__ void raise(Item (&value)[Shape::P], const Item (&before)[Shape::V],
                                      const typename Op::Carry& carry) {
    constexpr int E = Shape::E;
    const Item low = Op::low(carry), high = Op::high(carry);
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
        const Item base = Op::join(low, before[v]);
#pragma unroll
        for (int e = E - 1; e >= 0; --e) {
            Item& here = value[v * E + e];
            if constexpr (Shape::exclusive)
                here = Op::without(e > 0 ? Op::join(base, value[v * E + (e > 0 ? e - 1 : 0)]) : base, here);
            else
                here = Op::join(base, here);
            here = Op::lift(high, here);
        }
    }
}

// Joins what stands in the lanes, chunk by chunk and in each chunk lane by lane; every lane gets it. Lanes halve the
// chunks between them until each has one.
template <class Op, int V, class Item>
__device__ __forceinline__ Item joined_chunks(Item (&chunk)[V], int lane) {
    static_assert((V & (V - 1)) == 0 && V <= kWarp, "chunks are halved until one is left");
    const auto with = [&](const Item& own, int step, const Item& given) {
        const Item other = shuffled(given, [=](unsigned w) { return __shfl_xor_sync(kAllLanes, w, step); });
        return lane & step ? Op::join(other, own) : Op::join(own, other);
    };
    int step = 1;
#pragma unroll
    for (int left = V / 2; left > 0; left /= 2, step *= 2)
#pragma unroll
        for (int v = 0; v < left; ++v) {  // a lane keeps the chunks whose next bit is that of its number
            Item kept = chunk[2 * v], given = chunk[2 * v + 1];
            if (lane & step) {
                const Item even = kept;
                kept = given, given = even;
            }
            chunk[v] = with(kept, step, given);
        }
    Item all = chunk[0];
#pragma unroll
    for (int other = V; other < kWarp; other *= 2) all = with(all, other, all);
#pragma unroll
    for (int other = 1; other < V; other *= 2) all = with(all, other, all);
    return all;
}

// What a warp's elements amount to, for all its threads; `total` is spare.
template <class Op, class Shape, class Item>
__device__ __forceinline__ Item sum_warp(Item (&value)[Shape::P], Item (&total)[Shape::V], int lane) {
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
        total[v] = value[v * Shape::E];
#pragma unroll
        for (int e = 1; e < Shape::E; ++e) total[v] = Op::join(total[v], value[v * Shape::E + e]);
    }
    return joined_chunks<Op>(total, lane);
}
