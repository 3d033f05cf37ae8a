// Scans that begin anew where a segment begins. Items know whether they begin one: as pairs they are joined by an
// associative operator again (G. Blelloch, "Prefix Sums and Their Applications", CMU-CS-90-190, 1990, section 1.5).
// A value of another segment is left out, not multiplied by zero: infinities and NaN stay in theirs.
#pragma once
#include "long_scan.cuh"

enum Flags : unsigned {
    kBegun = 1,   // a segment begins at the item, or among those it stands for
    kBegins = 2,  // one begins at the last of them
};

// A value with flags, in words of 4 bytes, so that no padding is passed on.
template <class T>
struct Flagged {
    Words<T> words;
    unsigned flags;

    __device__ __forceinline__ T value() const { return value_of<T>(words); }
};

template <class T>
__device__ __forceinline__ Flagged<T> flagged(const T& value, unsigned flags) {
    return {words_of(value), flags};
}

// An operator of operators.cuh within segments.
template <class Op>
struct Segmented {
    using In = typename Op::In;
    using Out = typename Op::Out;
    using Item = Flagged<typename Op::Item>;
    using Carry = Flagged<typename Op::Carry>;

    static __device__ __forceinline__ Item read(In x, unsigned char begins) {
        return flagged(typename Op::Item(Op::read(x)), begins ? kBegun | kBegins : 0u);
    }
    static __device__ __forceinline__ Out write(const Item& item) { return Op::write(item.value()); }
    static __device__ __forceinline__ Item identity() { return flagged(typename Op::Item(Op::identity()), 0u); }
    template <class T>
    static __device__ __forceinline__ Flagged<T> join(const Flagged<T>& a, const Flagged<T>& b) {
        const unsigned flags = (a.flags & kBegun) | b.flags;
        return flagged(b.flags & kBegun ? b.value() : T(Op::join(a.value(), b.value())), flags);
    }
    static __device__ __forceinline__ Carry widen(const Item& item) {
        return flagged(typename Op::Carry(Op::widen(item.value())), item.flags);
    }
    static __device__ __forceinline__ Item low(const Carry& c) {
        return flagged(typename Op::Item(Op::low(c.value())), 0u);
    }
    static __device__ __forceinline__ Item high(const Carry& c) {
        return flagged(typename Op::Item(Op::high(c.value())), 0u);
    }
    static __device__ __forceinline__ Item lift(const Item& high, const Item& item) {
        if (item.flags & kBegun) return item;
        return flagged(typename Op::Item(Op::lift(high.value(), item.value())), item.flags);
    }
    static __device__ __forceinline__ Item without(const Item& before, const Item& item) {
        return item.flags & kBegins ? flagged(typename Op::Item(Op::identity()), item.flags) : before;
    }
    static __device__ __forceinline__ bool settles(const Carry& c) { return c.flags & kBegun; }
};

// Elements of a tile that are among the first `room` ones; the others are zero.
template <class T, class Shape>
__device__ __forceinline__ Part<T, Shape> part_of(const T* __restrict__ tile, long long room) {
    if (room >= Shape::size) return whole_part<T, Shape>(tile);
    Part<T, Shape> part;
#pragma unroll
    for (int v = 0; v < Shape::V; ++v)
#pragma unroll
        for (int e = 0; e < Shape::E; ++e) {
            const int at = Shape::place(v) + e;
            part.at[Shape::index(v, e)] = at < room ? tile[at] : T{};
        }
    return part;
}

// Whether segments begin at a thread's elements of a tile, from flags of the elements in memory: at one that has a flag
// or, where rows are scanned in reverse, in front of it.
template <class Shape>
__device__ __forceinline__ Part<unsigned char, Shape> beginnings(const unsigned char* flags, long long room) {
    constexpr int E = Shape::E;
    Part<unsigned char, Shape> begins = part_of<unsigned char, Shape>(flags, room);
    if constexpr (Shape::reverse) {
#pragma unroll
        for (int v = 0; v < Shape::V; ++v) {  // the element behind has the number before
            const int behind = Shape::place(v) + E;
#pragma unroll
            for (int e = E - 1; e > 0; --e) begins.at[v * E + e] = begins.at[v * E + e - 1];
            begins.at[v * E] = behind < room ? flags[behind] : 0;
        }
    }
    return begins;
}

// Makes the items of a tile; beyond `room` they are the identity.
template <class Op, class Shape, class Item, class In>
__device__ __forceinline__ void make_items(Item (&value)[Shape::P], long long room, const Part<In, Shape>& x,
                                           const Part<unsigned char, Shape>& begins) {
#pragma unroll
    for (int v = 0; v < Shape::V; ++v)
#pragma unroll
        for (int e = 0; e < Shape::E; ++e) {
            const int i = Shape::index(v, e);
            const bool inside = room >= Shape::size || Shape::place(v) + e < room;
            value[i] = inside ? Op::read(x.at[i], begins.at[i]) : Op::identity();
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

// Sets the bits of a tile's elements at which segments begin, as `beginnings` has it, for all threads of a block; `begin`
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

// Whether segments begin at a thread's elements, from such bits.
template <class Shape>
__device__ __forceinline__ Part<unsigned char, Shape> marked(const unsigned (&bits)[Shape::size / 32]) {
    Part<unsigned char, Shape> begins;
#pragma unroll
    for (int v = 0; v < Shape::V; ++v) {
        const int place = Shape::place(v);
        const unsigned pack = bits[place / 32] >> place % 32;  // a pack lies in a word
#pragma unroll
        for (int e = 0; e < Shape::E; ++e) begins.at[Shape::index(v, e)] = pack >> e & 1;
    }
    return begins;
}
