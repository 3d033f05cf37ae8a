// Scans that begin anew where a segment begins. What elements side by side amount to is a pair: the value behind the last
// beginning among them, and whether there is one. Pairs are joined by an associative operator again (G. Blelloch, "Prefix
// Sums and Their Applications", CMU-CS-90-190, 1990, section 1.5). A value of another segment is left out, not multiplied
// by zero: infinities and NaN stay in theirs.
//
// Threads hold no pairs of elements, but values and a word for each pack that tells where segments begin. Warps vote on
// those words, so that their shuffles move values only. Tiles tell values only, too: a tile in which a segment begins tells
// all at once, and one that has told its own total has none.
#pragma once
#include "long_scan.cuh"

// A value, and whether a segment begins among the elements it stands for; in words of 4 bytes, without padding.
template <class T>
struct Flagged {
    Words<T> words;
    unsigned begun;

    __device__ __forceinline__ T value() const { return value_of<T>(words); }
};

template <class T>
__device__ __forceinline__ Flagged<T> flagged(const T& value, bool begun) {
    return {words_of(value), begun};
}

// An operator of operators.cuh within segments.
template <class Op>
struct Segmented {
    using In = typename Op::In;
    using Out = typename Op::Out;
    using Item = Flagged<typename Op::Item>;
    using Carry = Flagged<typename Op::Carry>;

    static __device__ __forceinline__ Item identity() { return flagged(typename Op::Item(Op::identity()), false); }
    template <class T>
    static __device__ __forceinline__ Flagged<T> join(const Flagged<T>& a, const Flagged<T>& b) {
        return flagged(b.begun ? b.value() : T(Op::join(a.value(), b.value())), a.begun || b.begun);
    }
    static __device__ __forceinline__ Carry widen(const Item& item) {
        return flagged(typename Op::Carry(Op::widen(item.value())), item.begun);
    }
    static __device__ __forceinline__ bool settles(const Carry& c) { return c.begun; }
};

// Totals as tiles tell them: of one in which a segment begins, what stands before does not matter.
template <class T>
struct Board<Flagged<T>> {
    Word* words;

    __device__ __forceinline__ void tell(unsigned tile, Stage stage, const Flagged<T>& total) const {
        Board<T>{words}.tell(tile, total.begun ? kAll : stage, total.value());
    }
    __device__ __forceinline__ Told<Flagged<T>> told_by(unsigned tile) const {
        const Told<T> told = Board<T>{words}.told_by(tile);
        return {told.stage, flagged(told.value, told.stage == kAll)};
    }
};

// An unsigned type of so many bytes
template <int bytes>
struct WordOf;
template <>
struct WordOf<1> {
    using type = unsigned char;
};
template <>
struct WordOf<2> {
    using type = unsigned short;
};
template <>
struct WordOf<4> {
    using type = unsigned;
};
template <>
struct WordOf<8> {
    using type = unsigned long long;
};

// At which of a pack's E elements, as they are scanned, segments begin: where the element's `bits` are not all zero.
template <int E, int bits>
struct Heads {
    static_assert(E * bits <= 64, "in a word");
    using Word = typename WordOf<(E * bits > 32 ? 8 : 4)>::type;
    Word word;

    // Whether at one of the elements from `first` to before `end`
    __device__ __forceinline__ bool among(int first, int end) const {
        const Word all = ~Word(0), below_end = end > first ? all >> (8 * int(sizeof(Word)) - end * bits) : Word(0);
        return word & below_end & all << first * bits;
    }
};

// What a thread holds of a tile.
template <class Op, class Shape, int bits>
struct SegmentItems {
    typename Op::Item at[Shape::P];
    Heads<Shape::E, bits> heads[Shape::V];
};

// What stands before each pack, once it has been scanned; bit v is of pack v.
template <class Op, class Shape>
struct BeforePacks {
    static_assert(Shape::V <= 32 && Shape::shuffle, "packs have bits, and warps vote");
    typename Op::Item at[Shape::V];
    unsigned heads;  // segments begin in the pack
    unsigned begun;  // or before it, among the elements that have been scanned
};

// As HeldItems of tile.cuh; the functions of that file have overloads below. Heads are flags in memory, or bits.
template <class Op, class Shape, int bits>
struct HeldSegments {
    static constexpr int behind = Shape::reverse, spare = 16 * behind, together = Shape::reverse ? 1 : 2;
    using Value = SegmentItems<Op, Shape, bits>;
    using Before = BeforePacks<Op, Shape>;

    // Behind a whole tile in shared memory, whether a segment begins at the element that follows it
    template <class T>
    static __device__ __forceinline__ void bring_behind(long long room, T*, unsigned char* flags, const T*,
                                                        const unsigned char* from) {
        flags[Shape::size] = room > Shape::size ? from[Shape::size] : 0;
    }
};

// Where segments begin in a pack, from its flags as they lie in memory and, where rows are scanned in reverse, the flag
// behind them: then a segment begins at the element in front of the flag.
template <class Shape, class Word>
__device__ __forceinline__ Heads<Shape::E, 8> heads_of(Word flags, Word behind) {
    if constexpr (!Shape::reverse) return {flags};
    Word turned = behind;
#pragma unroll
    for (int e = 1; e < Shape::E; ++e) turned |= (flags >> 8 * (Shape::E - e) & 0xff) << 8 * e;
    return {turned};
}

// As many of a tile's elements, and of the one behind it, as are among the next `room` ones of the row: in 32 bits, which
// take fewer registers where places are held against it.
template <class Shape>
__device__ __forceinline__ int inside(long long room) {
    return room > Shape::size ? Shape::size + 1 : int(room);
}

// Reads elements; their heads are taken apart (take_heads).
template <class Op, class Shape, class Of, class In>
__device__ __forceinline__ void read_tile(long long room, SegmentItems<Of, Shape, 1>& value, int rank,
                                          const In* __restrict__ tile) {
    read_tile<Of, Shape>(inside<Shape>(room), value.at, rank, tile);
}

// Reads elements, and flags likewise: none is read that is `room` or more behind the beginning of the tile.
template <class Op, class Shape, class Of, class In>
__device__ __forceinline__ void read_tile(long long room, SegmentItems<Of, Shape, 8>& value, int rank,
                                          const In* __restrict__ tile, const unsigned char* __restrict__ flags) {
    constexpr int E = Shape::E;
    using Word = typename Heads<E, 8>::Word;
    const int end = inside<Shape>(room);
    const auto flag_at = [&](int place) { return Word(place < end ? flags[place] : 0); };
    read_tile<Of, Shape>(end, value.at, rank, tile);
    if (end >= Shape::size) {
#pragma unroll
        for (int v = 0; v < Shape::V; ++v) {
            const int place = Shape::place(v, rank);
            const Word word = *reinterpret_cast<const typename WordOf<E>::type*>(flags + place);
            value.heads[v] = heads_of<Shape>(word, Shape::reverse ? flag_at(place + E) : Word(0));
        }
        return;
    }
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
        const int place = Shape::place(v, rank);
        Word word = 0;
#pragma unroll
        for (int e = 0; e < E; ++e) word |= flag_at(place + e) << 8 * e;
        value.heads[v] = heads_of<Shape>(word, Shape::reverse ? flag_at(place + E) : Word(0));
    }
}

template <class Op, class Shape, class Of, int bits, class Out>
__device__ __forceinline__ void write_tile(Out* __restrict__ tile, long long room,
                                           const SegmentItems<Of, Shape, bits>& value) {
    write_tile<Of, Shape>(tile, inside<Shape>(room), value.at);
}

template <class Op, class Shape, class Of, int bits>
__device__ __forceinline__ void join_packs(SegmentItems<Of, Shape, bits>& value, BeforePacks<Of, Shape>& total) {
    constexpr int E = Shape::E;
    total.heads = 0;
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
#pragma unroll
        for (int e = 1; e < E; ++e)
            if (!value.heads[v].among(e, e + 1))
                value.at[v * E + e] = Of::join(value.at[v * E + e - 1], value.at[v * E + e]);
        total.at[v] = value.at[v * E + E - 1];
        total.heads |= unsigned(value.heads[v].among(0, E)) << v;
    }
}

// A lane joins what lower ones have down to the last pack in which a segment begins.
template <class Op, class Shape, class Of>
__device__ __forceinline__ typename Op::Item scan_chunks(BeforePacks<Of, Shape>& total, typename Op::Item running) {
    const int lane = threadIdx.x % kWarp;
    total.begun = 0;
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
        const unsigned heads = __ballot_sync(kAllLanes, total.heads >> v & 1);
        const unsigned below = heads & ((1u << lane) - 1), own = heads & 1u << lane;
        const int first = below | own ? 31 - __clz(int(below | own)) : 0;
        auto sum = total.at[v];
        const auto from_below = [&](int span) {
            return shuffled(sum, [=](unsigned w) { return __shfl_up_sync(kAllLanes, w, span); });
        };
#pragma unroll
        for (int span = 1; span < kWarp; span *= 2) {
            const auto before = from_below(span);
            if (lane - span >= first) sum = Of::join(before, sum);
        }
        const auto chunk = shuffled(sum, [](unsigned w) { return __shfl_sync(kAllLanes, w, kWarp - 1); });
        const auto before = from_below(1);
        total.at[v] = below ? before : lane > 0 ? Of::join(running.value(), before) : running.value();
        total.begun |= unsigned(below || running.begun) << v;
        running = flagged(heads ? chunk : Of::join(running.value(), chunk), heads || running.begun);
    }
    return running;
}

template <class Op, class Shape, class Of>
__device__ __forceinline__ void join_before(const typename Op::Item& before, BeforePacks<Of, Shape>& total) {
#pragma unroll
    for (int v = 0; v < Shape::V; ++v)
        if (!(total.begun >> v & 1)) total.at[v] = Of::join(before.value(), total.at[v]);
    if (before.begun) total.begun = ~0u;
}

// Only what stands behind the last beginning of a segment counts.
template <class Op, class Shape, class Of, int bits>
__device__ __forceinline__ typename Op::Item sum_warp(SegmentItems<Of, Shape, bits>& value, BeforePacks<Of, Shape>& total,
                                                      int lane) {
    constexpr int E = Shape::E, V = Shape::V;
    int last = -1;  // of the warp's packs
#pragma unroll
    for (int v = 0; v < V; ++v) {
        auto sum = value.at[v * E + E - 1];
#pragma unroll
        for (int e = E - 2; e >= 0; --e)
            if (!value.heads[v].among(e + 1, E)) sum = Of::join(value.at[v * E + e], sum);
        total.at[v] = sum;
        const unsigned heads = __ballot_sync(kAllLanes, value.heads[v].among(0, E));
        if (heads) last = v * kWarp + 31 - __clz(int(heads));
    }
#pragma unroll
    for (int v = 0; v < V; ++v)
        if (v * kWarp + lane < last) total.at[v] = Of::identity();
    return flagged(joined_chunks<Of>(total.at, lane), last >= 0);
}

template <class Op, class Shape, class Of, int bits>
__device__ __forceinline__ void raise(SegmentItems<Of, Shape, bits>& value, const BeforePacks<Of, Shape>& before,
                                      const typename Op::Carry& carry) {
    using Item = typename Of::Item;
    constexpr int E = Shape::E;
    const Item low = Of::low(carry.value()), high = Of::high(carry.value());
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
        const auto& heads = value.heads[v];
        const bool begun = before.begun >> v & 1;
        const Item base = begun ? before.at[v] : Item(Of::join(low, before.at[v]));
        const auto lifted = [&](const Item& sum) { return begun ? sum : Item(Of::lift(high, sum)); };
        const auto raised = [&](int e) {  // the sum up to an element of the pack
            const Item& own = value.at[v * E + e];
            return heads.among(0, e + 1) ? own : lifted(Of::join(base, own));
        };
#pragma unroll
        for (int e = E - 1; e >= 0; --e) {
            Item& here = value.at[v * E + e];
            if constexpr (Shape::exclusive) {
                if (heads.among(e, e + 1))
                    here = Of::identity();
                else
                    here = e > 0 ? raised(e > 0 ? e - 1 : 0) : lifted(base);
            } else
                here = raised(e);
        }
    }
}

// How many of `count` offsets, which never fall, are below `bound`; all threads of a block search, and pass a barrier at
// least once.
template <int L, class Offset>
__device__ __forceinline__ long long offsets_below(const Offset* __restrict__ offsets, long long count, long long bound) {
    long long low = 0, high = count;
    do {
        const long long step = high - low > L ? (high - low + L - 1) / L : 1;
        const long long probe = low + (threadIdx.x + 1) * step - 1;
        low += __syncthreads_count(probe < high && offsets[probe] < bound) * step;
        if (high > low + step - 1) high = low + step - 1;
    } while (low < high);
    return low;
}

// Sets the bits of a tile's elements at which segments begin, as heads_of has it, for all threads of a block; `begin`
// is the tile's first element in its row.
template <class Shape, class Offset>
__device__ __forceinline__ void mark_segments(unsigned (&bits)[Shape::size / 32], const Offset* __restrict__ offsets,
                                              long long count, long long begin) {
    const long long bound = begin + Shape::reverse;
    for (int i = threadIdx.x; i < Shape::size / 32; i += Shape::L) bits[i] = 0;
    const long long first = offsets_below<Shape::L>(offsets, count, bound);
    for (long long i = first + threadIdx.x; i < count; i += Shape::L) {
        const long long at = offsets[i] - bound;
        if (at >= Shape::size) break;
        if (at >= 0) atomicOr(&bits[at / 32], 1u << at % 32);
    }
    __syncthreads();
}

// Where segments begin in a thread's packs, from such bits.
template <class Op, class Shape>
__device__ __forceinline__ void take_heads(SegmentItems<Op, Shape, 1>& value, const unsigned (&bits)[Shape::size / 32]) {
    constexpr int E = Shape::E;
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
        const int place = Shape::place(v);
        const unsigned pack = bits[place / 32] >> place % 32;  // a pack lies in a word
        value.heads[v].word = Shape::reverse ? __brev(pack) >> (32 - E) : pack;
    }
}
