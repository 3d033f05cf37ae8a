// Products one after another by blocks that stay: asynchronous copies bring slabs to shared memory, `ahead` of the one
// that is multiplied, across the products of a block.
#pragma once
#include "async_copy.cuh"
#include "tiles.cuh"

// The slabs of a slot's products as one sequence, in `ahead + 1` buffers by turns. A unit of work is a strip of a product.
template <class TileType, class T, int n, int strip, int depth, int ahead>
struct Stream {
    using Tile = TileType;
    static constexpr int width = access_width<T>(n), threads = Tile::threads, lanes = threads * width;
    static constexpr int strips = (n + strip - 1) / strip, slabs = (n + depth - 1) / depth;
    static constexpr int a_elements = Tile::padded * Tile::leading_a, b_elements = Tile::breadth * Tile::leading_b;

    const T *const A, *const B;
    T* const memory;
    const int rank, step, units;
    int unit, slab, filled;         // that are fetched next, and where to
    const int place_a, place_b;     // of the thread's first numbers in a slab

    __device__ __forceinline__ Stream(const T* A, const T* B, T* memory, int rank, int first, int step, int units)
        : A(A), B(B), memory(memory), rank(rank), step(step), units(units), unit(first), slab(0), filled(0),
          place_a(in_a(rank * width)), place_b(in_b(rank * width)) {}

    // Where number e of a slab goes.
    static __device__ __forceinline__ int in_a(int e) { return e / n * Tile::leading_a + e % n; }
    static __device__ __forceinline__ int in_b(int e) { return e / depth * Tile::leading_b + e % depth; }

    __device__ __forceinline__ T* a(int buffer) const { return memory + buffer * (a_elements + b_elements); }
    __device__ __forceinline__ T* b(int buffer) const { return a(buffer) + a_elements; }
    static __device__ __forceinline__ int following(int buffer) { return buffer == ahead ? 0 : buffer + 1; }

    // Starts copies of the next slab, if there is one.
    __device__ __forceinline__ void fetch() {
        constexpr bool whole = slabs * depth == n, all = strips * strip == n;
        if (unit < units) {
            const int k = slab * depth, start = unit % strips * strip;
            const T* const left = A + (size_t)(unit / strips) * n * n + k * n;
            const T* const right = B + (size_t)(unit / strips) * n * n + start * n + k;
#pragma unroll
            for (int s = 0; s < n * depth; s += lanes) {
                const int e = s + rank * width;
                const bool exists = whole || k * n + e < n * n;
                const int to = lanes % n == 0 ? place_a + s / n * Tile::leading_a : in_a(e);
                if (n * depth % lanes == 0 || e < n * depth)
                    copy_async<width * sizeof(T)>(a(filled) + to, exists ? left + e : left, exists);
            }
#pragma unroll
            for (int s = 0; s < strip * depth; s += lanes) {
                const int e = s + rank * width, row = e % depth, column = e / depth;
                const bool exists = (all || start + column < n) && (whole || k + row < n);
                const int to = lanes % depth == 0 ? place_b + s / depth * Tile::leading_b : in_b(e);
                if (strip * depth % lanes == 0 || e < strip * depth)
                    copy_async<width * sizeof(T)>(b(filled) + to, exists ? right + column * n + row : left, exists);
            }
        }
        close_group();
        filled = following(filled);
        if (++slab == slabs) slab = 0, unit += step;
    }
};

// Multiplies the share of a slot; `memory` is its own.
template <class Tile, int strip, int depth, int problems, int ahead, class T, int n>
__device__ __forceinline__ void multiply_stream(const T* A, const T* B, T* C, int batch, T* memory, int slot, int rank) {
    using Slabs = Stream<Tile, T, n, strip, depth, ahead>;
    constexpr int meeting = kWarp % Tile::threads == 0 ? kWarp : kWarp + 1;  // slots within a warp need no other
    const int first = blockIdx.x * problems + slot, step = gridDim.x * problems, units = batch * Slabs::strips;
    Slabs slabs(A, B, memory, rank, first, step, units);
    for (int buffer = 0; buffer <= ahead; ++buffer) pad<Tile, depth>(slabs.a(buffer), slabs.b(buffer), rank);
#pragma unroll 1
    for (int i = 0; i < ahead; ++i) slabs.fetch();
    int now = 0;
#pragma unroll 1
    for (int unit = first; unit - slot < units; unit += step) {  // as often in every slot of a block
        Tile tile(rank);
#pragma unroll 1
        for (int s = 0; s < Slabs::slabs; ++s) {
            wait_groups<ahead - 1>();
            meet<meeting>();  // the slab is there for all, and all are done with the one before
            slabs.fetch();
            tile.add(slabs.a(now), slabs.b(now));
            now = Slabs::following(now);
        }
        const int start = unit % Slabs::strips * strip;
        tile.write_to(C + (size_t)(unit / Slabs::strips) * n * n + start * n, unit < units ? min(strip, n - start) : 0);
    }
}
