// Scans of long rows in one pass, as a pipeline of warps: what long_scan.cuh does one after another for a tile goes on
// at the same time for several. Blocks stay, and a ring of `slots` tiles in shared memory is worked at by
//
//   a loader    draws tiles and has the copy engine bring them, as far ahead as there are free slots
//   summers     each add up every `summers`-th tile as soon as it has come, tell other blocks its total, and the scanners
//               what stands before each segment
//   a looker    finds what comes before each tile
//   L / 32 scanners    of which each scans its segment of every tile, and meets no other
//
// A block knows what all elements up to the end of its last tile amount to, so its looker joins the totals of the tiles
// between that and the next one, some 32 `groups` of them at a time. All have usually been told: a tile waits only for
// totals, which need nothing but its own elements. Of segments (segments.cuh), a total in which one begins hides those
// before it.
//
// Why no block waits forever. A tile is drawn when there is room for it and then brought, summed and told, whatever
// other tiles do. So the totals of all drawn tiles are told; tiles are drawn in order, so that those are all a looker
// waits for. Scanners wait for the looker alone, and then free the slot. This needs neither all blocks on the device at
// a time nor any order among those that are. It needs every drawn tile to be summed once: see `slots % summers` below.
#pragma once
#include "long_scan.cuh"
#include "mbarrier.cuh"

// A tile in a block: barriers of its stages, and what stages tell each other.
template <class Op, int warps>
struct Slot {
    Mbarrier come, summed, carried, free;
    unsigned tile;
    typename Op::Carry total, carry;
    typename Op::Item before[warps];  // of the tile's elements before each segment
};

// Where the k-th tile of a block stands, and the parity of its barriers' phases then.
template <int slots>
struct Turn {
    int slot = 0;
    unsigned parity = 0;

    __device__ __forceinline__ void advance(int tiles = 1) {
        slot += tiles;
        if (slot < slots) return;
        slot -= slots;
        parity ^= 1;
    }
};

// Joins what tiles from `next` to before `tile` have told, behind `known`, for a whole warp; waits until they have.
template <class Op, int groups>
__device__ __forceinline__ typename Op::Carry join_told(const Board<typename Op::Carry>& board, long long next,
                                                       unsigned tile, typename Op::Carry known, int lane) {
    using Carry = typename Op::Carry;
    const Told<Carry> none = {kOwn, Op::widen(Op::identity())};
    for (; next < tile; next += kWarp * groups) {
        const long long mine = next + lane * groups;
        Told<Carry> told[groups];
#pragma unroll
        for (int g = 0; g < groups; ++g) told[g] = mine + g < tile ? board.told_by(unsigned(mine + g)) : none;
        Carry own[1];
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            Told<Carry> now = told[g];
            while (now.stage == kNothing) now = board.told_by(unsigned(mine + g));
            own[0] = g > 0 ? Op::join(own[0], now.value) : now.value;
        }
        known = Op::join(known, joined_chunks<Op>(own, lane));
    }
    return known;
}

template <class... T>
struct Types {};

// The element of an array, a pointer or PitchedRows
template <class Array>
struct ElementOf;
template <class T>
struct ElementOf<T*> {
    using type = T;
};
template <class T>
struct ElementOf<const T*> {
    using type = T;
};
template <class T>
struct ElementOf<PitchedRows<const T>> {
    using type = T;
};

// Calls `use` with where the elements of each array stand that a slot holds one after another.
template <class Shape, class Use, class... Found>
__device__ __forceinline__ void with_arrays(Types<>, unsigned char*, const Use& use, Found*... found) {
    use(found...);
}
template <class Shape, class First, class... Rest, class Use, class... Found>
__device__ __forceinline__ void with_arrays(Types<First, Rest...>, unsigned char* at, const Use& use, Found*... found) {
    First* const here = reinterpret_cast<First*>(at);
    with_arrays<Shape>(Types<Rest...>{}, at + Shape::size * sizeof(First), use, found..., here);
}

// The stages of a block's pipeline, each called by the warps that it is for. Held is as HeldItems of tile.cuh.
template <class Op, class Shape, class Held, int slots, int summers, int groups, class... In>
struct Pipeline {
    // Parities tell a phase of a barrier only from the one before, and copies may end in any order. Who waits for a
    // slot's next tile must have waited for this one, else it may take this one for the next: the next is then summed by
    // nobody, and blocks that look back at it wait forever.
    static_assert(slots % summers == 0, "a slot is always the same summer's");
    using Item = typename Op::Item;
    using Carry = typename Op::Carry;
    using Arrays = Types<In...>;
    static constexpr int warps = Shape::L / kWarp;
    static constexpr unsigned loaded = unsigned(Shape::size) * (unsigned(sizeof(In)) + ...), bytes = loaded + Held::spare;

    static constexpr int kTogether = Held::together;  // segments that are summed side by side

    Slot<Op, warps>* ring;
    unsigned char* room;
    Rows<Shape> rows;
    Board<Carry> board;
    int lane;

    // By one thread, before it meets all others
    __device__ __forceinline__ void make() const {
        for (int s = 0; s < slots; ++s) {
            mbarrier_make(&ring[s].come, kWarp);
            mbarrier_make(&ring[s].summed, kWarpArrivals);
            mbarrier_make(&ring[s].carried, kWarpArrivals);
            mbarrier_make(&ring[s].free, warps * kWarpArrivals);
        }
        mbarrier_made();
    }

    template <class... Array>
    __device__ __forceinline__ void load(unsigned* counter, Array... x) const {
        bool again = false;  // whether the slot was in use before
        int ends = 0;        // told, one to each summer
        for (Turn<slots> at;; at.advance()) {
            Slot<Op, warps>& slot = ring[at.slot];
            if (again) mbarrier_wait(&slot.free, at.parity ^ 1);
            again = again || at.slot == slots - 1;
            unsigned tile = 0;
            if (lane == 0) slot.tile = tile = atomicAdd(counter, 1u);
            tile = __shfl_sync(kAllLanes, tile, 0);
            if (tile < rows.count)
                with_arrays<Shape>(Arrays{}, room + at.slot * bytes,
                                   [&](In*... to) { bring(slot, tile, to..., rows.at(x, tile)...); });
            else
                mbarrier_arrive(&slot.come);
            if (tile >= rows.count && ++ends == summers) return;
        }
    }

    // The copy engine brings whole tiles, which begin at `x`, the lanes those that are shorter.
    __device__ __forceinline__ void bring(Slot<Op, warps>& slot, unsigned tile, In*... to, const In*... x) const {
        const long long extent = rows.extent(tile);
        if (extent < Shape::size) {
            constexpr int run = ((sizeof(In) == 1) || ...) ? 4 : 1;  // lanes write words of shared memory, not parts
            for (int first = run * lane; first < int(extent); first += run * kWarp)
#pragma unroll
                for (int i = first; i < first + run; ++i)
                    if (run == 1 || i < int(extent)) ((to[i] = x[i]), ...);
        } else if (lane == 0) {
            before_bulk_loads();
            (bulk_load(to, x, Shape::size * sizeof(In), &slot.come), ...);
            if constexpr (Held::spare > 0) Held::bring_behind(rows.room(tile), to..., x...);
            mbarrier_expect(&slot.come, loaded);
            return;
        }
        mbarrier_arrive(&slot.come);
    }

    // Items of a segment of a tile that has `extent` elements
    __device__ __forceinline__ void read(int slot, long long extent, int segment, typename Held::Value& value) const {
        with_arrays<Shape>(Arrays{}, room + slot * bytes, [&](In*... from) {
            read_tile<Op, Shape>(extent, value, segment * kWarp + lane, static_cast<const In*>(from)...);
        });
    }

    __device__ __forceinline__ void sum(int summer) const {
        for (Turn<slots> at{summer};; at.advance(summers)) {
            Slot<Op, warps>& slot = ring[at.slot];
            mbarrier_wait(&slot.come, at.parity);
            const unsigned tile = slot.tile;
            if (tile < rows.count) {
                const long long extent = rows.extent(tile);
                const Item all = extent == Shape::size ? sum_segments(slot, at.slot, Shape::size + Held::behind)
                                                       : sum_segments(slot, at.slot, extent);
                if (lane == 0) {
                    slot.total = Op::widen(all);
                    board.tell(tile, kOwn, slot.total);
                }
            }
            __syncwarp();
            mbarrier_arrive_warp(&slot.summed, lane);
            if (tile >= rows.count) return;
        }
    }

    __device__ __forceinline__ Item sum_segments(Slot<Op, warps>& slot, int place, long long extent) const {
        Item running = Op::identity();
#pragma unroll kTogether
        for (int w = 0; w < warps; ++w) {
            typename Held::Value value;
            typename Held::Before total;
            read(place, extent, w, value);
            const Item sum = sum_warp<Op, Shape>(value, total, lane);
            if (lane == 0) slot.before[w] = running;
            running = Op::join(running, sum);
        }
        return running;
    }

    __device__ __forceinline__ void look() const {
        Carry known = Op::widen(Op::identity());  // of its row's elements before the tile `next`
        long long next = 0;
        for (Turn<slots> at;; at.advance()) {
            Slot<Op, warps>& slot = ring[at.slot];
            mbarrier_wait(&slot.summed, at.parity);
            const unsigned tile = slot.tile;
            const Carry total = slot.total;
            if (tile < rows.count) {
                const long long first = rows.first_of(tile);
                if (next <= first) next = first, known = Op::widen(Op::identity());
                known = join_told<Op, groups>(board, next, tile, known, lane);
                if (lane == 0) slot.carry = known;
            }
            __syncwarp();
            mbarrier_arrive_warp(&slot.carried, lane);
            if (tile >= rows.count) return;
            known = Op::join(known, total);
            next = tile + 1LL;
        }
    }

    template <class Out>
    __device__ __forceinline__ void scan(Out y, int segment) const {
        for (Turn<slots> at;; at.advance()) {
            Slot<Op, warps>& slot = ring[at.slot];
            mbarrier_wait(&slot.carried, at.parity);
            const unsigned tile = slot.tile;
            if (tile >= rows.count) return;
            mbarrier_wait(&slot.come, at.parity);  // by all who read what was copied
            typename Held::Value value;
            typename Held::Before before;
            read(at.slot, rows.room(tile), segment, value);
            const Carry carry = slot.carry;
            const Item running = slot.before[segment];
            __syncwarp();
            mbarrier_arrive_warp(&slot.free, lane);
            join_packs<Op, Shape>(value, before);
            scan_chunks<Op, Shape>(before, running);
            raise<Op, Shape>(value, before, carry);
            write_tile<Op, Shape>(rows.at(y, tile), rows.room(tile), value);
        }
    }
};

// Scans rows of items that are made of an element of each of some arrays, whose rows begin at multiples of 16 bytes. The
// block has 2 + summers warps more than scan. `board` is that of long_scan.cuh.
template <class Op, class Shape, int slots, int summers, int groups, class Held = HeldItems<Op, Shape>, class Out,
          class... Array>
__device__ __forceinline__ void scan_pipelined(const Rows<Shape>& rows, Out y, Word* board, Array... x) {
    using Stages = Pipeline<Op, Shape, Held, slots, summers, groups, typename ElementOf<Array>::type...>;
    extern __shared__ __align__(128) unsigned char room[];
    __shared__ Slot<Op, Stages::warps> ring[slots];
    const int warp = threadIdx.x / kWarp;
    const Stages stages{ring, room, rows, {board + 1}, int(threadIdx.x % kWarp)};
    if (threadIdx.x == blockDim.x - 1) stages.make();
    __syncthreads();
    if (warp < Stages::warps)
        stages.scan(y, warp);
    else if (warp == Stages::warps)
        stages.load(reinterpret_cast<unsigned*>(board), x...);
    else if (warp == Stages::warps + 1)
        stages.look();
    else
        stages.sum(warp - Stages::warps - 2);
}
