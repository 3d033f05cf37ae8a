// Scans of long rows in one pass: blocks take tiles of a row one after another, and look back for what comes before
// (look_back.cuh). The operator is any of operators.cuh, or a struct like those.
//
// `board` is zero when a launch begins: a counter of tiles, then the words that tiles tell each other by.
#pragma once
#include "look_back.cuh"
#include "operators.cuh"
#include "row_layout.cuh"
#include "tile.cuh"

// Asks for elements to be brought to the second-level cache, in units of 16 bytes, while the block waits for others.
template <class In>
__device__ __forceinline__ void fetch_ahead(const In* from, long long count) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 900
    const size_t begin = reinterpret_cast<size_t>(from) & ~size_t(15), end = reinterpret_cast<size_t>(from + count);
    const unsigned bytes = unsigned(end - begin) & ~15u;
    if (bytes) asm volatile("cp.async.bulk.prefetch.L2.global [%0], %1;" ::"l"(begin), "r"(bytes) : "memory");
#endif
}

// A launch of tiles: of each row, and in all.
template <class Shape>
struct Rows {
    long long length;
    unsigned of_row, count;

    __device__ __forceinline__ unsigned row(unsigned tile) const { return tile / of_row; }
    __device__ __forceinline__ unsigned first_of(unsigned tile) const { return row(tile) * of_row; }
    // Elements of all rows before a tile
    __device__ __forceinline__ long long begin(unsigned tile) const { return row(tile) * length + within(tile); }
    // Where a tile of an array begins
    template <class T>
    __device__ __forceinline__ T* at(T* array, unsigned tile) const {
        return array + begin(tile);
    }
    template <class T>
    __device__ __forceinline__ T* at(const PitchedRows<T>& array, unsigned tile) const {
        return array.first + row(tile) * array.pitch + within(tile);
    }
    // Elements of its row behind the beginning of a tile
    __device__ __forceinline__ long long room(unsigned tile) const { return length - within(tile); }
    // Elements of its row before a tile
    __device__ __forceinline__ long long within(unsigned tile) const {
        const unsigned rank = tile % of_row;
        return (long long)(Shape::reverse ? of_row - 1 - rank : rank) * Shape::size;
    }
    // Elements of a tile
    __device__ __forceinline__ long long extent(unsigned tile) const {
        const long long behind = room(tile);
        return behind < Shape::size ? behind : Shape::size;
    }
};

// What comes before a tile, for all threads of its block; `total` is that of the tile. Only the first warp looks.
template <class Op, int groups, int pause_ns>
__device__ __forceinline__ typename Op::Carry carried(const Board<typename Op::Carry>& board, unsigned first,
                                                     unsigned tile, const typename Op::Carry& total) {
    using Carry = typename Op::Carry;
    __shared__ Carry shared;
    const bool leads = threadIdx.x == 0;
    if (tile == first) {
        if (leads) board.tell(tile, kAll, total);
        return Op::widen(Op::identity());
    }
    if (threadIdx.x < kWarp) {
        const bool settled = Op::settles(total);  // then it is what all up to its end amount to
        if (leads) board.tell(tile, settled ? kAll : kOwn, total);
        const Carry before = look_back<Op, groups, pause_ns>(board, first, tile, threadIdx.x);
        if (leads) {
            if (!settled) board.tell(tile, kAll, Op::join(before, total));
            shared = before;
        }
    }
    __syncthreads();
    return shared;
}

// With `stay`, blocks go on with further tiles, each drawn while the tile before is worked at. Arrays are pointers, or
// PitchedRows.
//
//   read(tile, value)  reads what a thread holds      fetch(tile)  has the tile brought to the second-level cache
template <class Op, class Shape, class Held, bool stay, int groups, int pause_ns, class Out, class Read, class Fetch>
__device__ __forceinline__ void scan_tiles(const Rows<Shape>& rows, Out y, Word* board, Read read,
                                           Fetch fetch) {
    using Item = typename Op::Item;
    using Carry = typename Op::Carry;
    __shared__ unsigned drawn[2];  // in turn: who draws the next tile does not wait until all have read this one
    __shared__ Item held[Shape::held];
    const bool leads = threadIdx.x == 0;
    unsigned* const counter = reinterpret_cast<unsigned*>(board);
    if (leads) drawn[0] = atomicAdd(counter, 1u);
    for (int turn = 0;; turn ^= 1) {
        __syncthreads();
        const unsigned tile = drawn[turn];
        if (tile >= rows.count) return;
        unsigned next = 0;
        if (stay && leads) next = atomicAdd(counter, 1u);

        typename Held::Value value;
        typename Held::Before before;
        read(tile, value);
        const Carry total = Op::widen(scan_tile<Op, Shape>(value, before, held));
        if (stay && leads && next < rows.count) fetch(next);
        const Carry carry =
            carried<Op, groups, pause_ns>(Board<Carry>{board + 1}, rows.first_of(tile), tile, total);
        raise<Op, Shape>(value, before, carry);
        write_tile<Op, Shape>(rows.at(y, tile), rows.room(tile), value);
        if (!stay) return;
        if (leads) drawn[turn ^ 1] = next;
    }
}

// Scans rows of items that are made of an element of each of some arrays.
template <class Op, class Shape, bool stay, int groups, int pause_ns, class Held = HeldItems<Op, Shape>, class Out,
          class... In>
__device__ __forceinline__ void scan_rows(const Rows<Shape>& rows, Out y, Word* board, In... x) {
    scan_tiles<Op, Shape, Held, stay, groups, pause_ns>(
        rows, y, board,
        [=](unsigned tile, typename Held::Value& value) {
            read_tile<Op, Shape>(rows.room(tile), value, threadIdx.x, rows.at(x, tile)...);
        },
        [=](unsigned tile) { (fetch_ahead(rows.at(x, tile), rows.extent(tile)), ...); });
}
