// Scans of long rows in a single pass by a user's associative operator, which need not be commutative:
//
//   struct Operator {
//       struct Item { ... };                                // what is joined; of whole words of 4 bytes
//       static __device__ Item read(A a, B b, ...);         // from an element of each input
//       static __device__ Out write(const Item& sum);       // to the output
//       static __device__ Item identity();                  // combined with any item on either side, gives that item
//       static __device__ Item combine(const Item& before, const Item& after);
//   };
//
// A kernel of a source that includes this file calls scan_by.
#pragma once
#include "long_scan.cuh"

// A user's operator as one of operators.cuh.
template <class Operator>
struct ScannedBy {
    using Item = typename Operator::Item;
    using Carry = Item;
    template <class... Elements>
    static __device__ __forceinline__ Item read(const Elements&... elements) {
        return Operator::read(elements...);
    }
    static __device__ __forceinline__ auto write(const Item& item) { return Operator::write(item); }
    static __device__ __forceinline__ Item identity() { return Operator::identity(); }
    static __device__ __forceinline__ Item join(const Item& a, const Item& b) { return Operator::combine(a, b); }
    static __device__ __forceinline__ Carry widen(const Item& item) { return item; }
    static __device__ __forceinline__ Item low(const Carry& c) { return c; }
    static __device__ __forceinline__ Item high(const Carry& c) { return c; }
    static __device__ __forceinline__ Item lift(const Item&, const Item& item) { return item; }
    static __device__ __forceinline__ Item without(const Item& before, const Item&) { return before; }
    static __device__ __forceinline__ bool settles(const Carry&) { return false; }
};

// Scans rows of `length` elements: y[i] is written from what the items of x[0], ..., x[i] of a row are combined to.
//
//   P  elements per thread    L  threads per block    E  elements per access; rows begin at multiples of E elements
//   stay       blocks go on with further tiles        groups     of 32 tiles that are looked back at in one go
//   exclusive  y[i] leaves x[i] out                   reverse    from the end of the row: x[i] stands after x[i + 1]
//
// `board` is zero when the launch begins, and has 1 + count * sizeof(Item) / 4 words. A row has of_row = ⌈length / (P L)⌉
// tiles, all rows have `count`. Arrays are pointers, or PitchedRows of row_layout.cuh. Launched with `count` blocks of L
// threads, or fewer that stay.
template <class Operator, int P, int L, int E, bool stay, int groups, bool exclusive, bool reverse, class Out, class... In>
__device__ __forceinline__ void scan_by(Out y, unsigned long long* board, long long length, int of_row, int count,
                                        In... x) {
    using Shape = TileShape<P, L, E, true, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    scan_rows<ScannedBy<Operator>, Shape, stay, groups, 0>(rows, y, board, x...);
}
