// Rows of tridiagonal systems between memory and the registers of a block's threads.
//
// A system of N rows is filled up to M, the next power of two, with rows of the identity that are never in memory; its
// G = M / P threads own P consecutive rows each. Longer systems are cut into tiles of M rows, of which a block has one;
// the last tile is filled up. A warp has 32 P rows at a time, part of a system or several whole
// ones. They come and go in chunks of E numbers, 16 bytes or as many as N leaves aligned:
//   direct     each lane its own rows. Lanes are P rows apart, so with many rows an access touches many lines
//   transpose  lanes side by side, so that an access touches whole lines; rows find their lane through a tile of
//              shared memory that belongs to the warp alone, one array after the other
//   async      the same, but memory is copied to tiles of all four arrays without passing registers
#pragma once
#include "row_layout.cuh"
#include "threads.cuh"
#include "vectors.cuh"

enum class Access { direct, transpose, async };

template <class T_, int N_, int P_, int L_, int M_ = next_pow2(N_), class Layout_ = DenseRows>
struct Shape {
    using T = T_;
    using Layout = Layout_;
    static constexpr int N = N_, P = P_, L = L_, M = M_;
    static constexpr int tiles = (N + M - 1) / M;  // of a system
    static constexpr int G = M / P;
    static constexpr int rows = kWarp * P;  // of a warp
    static constexpr int widest = P < int(16 / sizeof(T)) ? P : int(16 / sizeof(T));  // numbers of one access
    static constexpr int aligned = (N | Layout::aligned) % 4 == 0 ? 4 : (N | Layout::aligned) % 2 == 0 ? 2 : 1;
    static constexpr int E = aligned < widest ? aligned : widest;
    static_assert(2 <= P && P <= 32 && P <= M, "a thread holds rows of one system");
    static_assert(tiles == 1 ? P * L % M == 0 : P * L == M, "a block holds whole systems, or a tile");
};

// Place of a warp's row in its tile: lanes side by side, and lanes P rows apart, use different banks. The place of
// a sum of rows without a common bit is the exclusive or of their places. A number has `words` of 4 bytes.
template <int words>
__device__ constexpr int swizzled(int row) {
    return row ^ row / (32 / words) % 8 * (4 / words);
}

// The rows that a lane moves: its own ones, or (striped) chunks beside those of the next lane. `i` counts them, a chunk
// at a time. Systems are K N elements of the array apart, unless the layout has it otherwise.
template <class Shape, bool striped, int K = 1>
struct Mine {
    static constexpr int N = Shape::N, M = Shape::M, P = Shape::P;
    static constexpr int words = sizeof(typename Shape::T) / 4;
    static constexpr bool within = M >= Shape::rows;                    // the warp's rows are part of one system
    static constexpr bool apart = Shape::Layout::apart;
    static constexpr bool gapless = within || (N == M && K == 1 && !apart);  // no gaps between the warp's rows
    static constexpr bool dense = gapless || !striped;                  // nor between the lane's
    static constexpr bool whole = N == Shape::tiles * M && (within || !striped);  // all of the lane's rows exist, or none

    __device__ __forceinline__ explicit Mine(int batch, unsigned block = 0) {
        constexpr int tiles = Shape::tiles;
        const int warp_row = threadIdx.x / kWarp * Shape::rows;
        system = tiles > 1 ? block / tiles : block * (P * Shape::L / M) + warp_row / M;
        const int left = system < batch ? min(int(batch - system), Shape::rows) : 0;  // systems from here on
        row = tiles > 1 ? int(block % tiles) * M + warp_row % M : warp_row % M;  // the warp's first
        start = threadIdx.x % kWarp * (striped ? Shape::E : P);
        room = (!within ? left * M : left > 0 ? N - row : 0) - start;
    }
    // Element of an array whose systems are `step` elements from each other: the lane's first row, or where gaps follow,
    // the warp's
    template <class Step>
    __device__ __forceinline__ size_t first(Step step) const {
        size_t found = size_t(system) * step + row;
        if (dense) found += gapless ? start : start / M * step + start % M;
        return found;
    }
    static __device__ constexpr int step(int i) { return striped ? i * kWarp : i; }
    // False for rows that only fill up a system or the block
    __device__ __forceinline__ bool exist(int i) const {
        return (whole ? 0 : step(i)) < room && (within || N == M || (start + step(i)) % M < N);
    }
    // Elements from the first one
    template <class Step>
    __device__ __forceinline__ Step element(int i, Step apart) const {
        const int row = start + step(i);
        return dense ? step(i) : row / M * apart + row % M;
    }
    __device__ __forceinline__ int place(int i) const {
        return step(i) / 128 * 128 + (swizzled<words>(start) ^ swizzled<words>(step(i)) % 128);
    }

    unsigned system;  // the warp's first
    int row;          // the warp's first in it
    int start;        // of the warp's rows: the lane's first
    int room;         // rows from the lane's first to the end of those that exist
};

template <int E, class T>
__device__ __forceinline__ void get(T* to, const T* from) {
    const auto chunk = *reinterpret_cast<const Pack<T, E>*>(from);
#pragma unroll
    for (int e = 0; e < E; ++e) to[e] = chunk.at[e];
}

template <int E, class T>
__device__ __forceinline__ void put(T* to, const T* from) {
    Pack<T, E> chunk;
#pragma unroll
    for (int e = 0; e < E; ++e) chunk.at[e] = from[e];
    *reinterpret_cast<Pack<T, E>*>(to) = chunk;
}

// From lanes side by side to the lanes that own the rows, and back
template <class Shape>
__device__ __forceinline__ void to_owners(typename Shape::T* tile, typename Shape::T (&values)[Shape::P]) {
    constexpr int P = Shape::P, E = Shape::E, own = Shape::widest;
    const Mine<Shape, true> from(0);
    const Mine<Shape, false> to(0);
#pragma unroll
    for (int i = 0; i < P; i += E) put<E>(tile + from.place(i), values + i);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < P; i += own) get<own>(values + i, tile + to.place(i));
    __syncwarp();
}

template <class Shape>
__device__ __forceinline__ void from_owners(typename Shape::T* tile, typename Shape::T (&values)[Shape::P]) {
    constexpr int P = Shape::P, E = Shape::E, own = Shape::widest;
    const Mine<Shape, false> from(0);
    const Mine<Shape, true> to(0);
    __syncwarp();  // others may still read the array before
#pragma unroll
    for (int i = 0; i < P; i += own) put<own>(tile + from.place(i), values + i);
    __syncwarp();
#pragma unroll
    for (int i = 0; i < P; i += E) get<E>(values + i, tile + to.place(i));
}

// Starts a copy from memory to shared memory. Before compute capability 8.0 it is an ordinary one.
template <int E, class T>
__device__ __forceinline__ void copy_async(T* to, const T* from) {
#if __CUDA_ARCH__ >= 800
    const unsigned place = static_cast<unsigned>(__cvta_generic_to_shared(to));
    if constexpr (E * sizeof(T) == 16)
        asm volatile("cp.async.cg.shared.global [%0], [%1], 16;" ::"r"(place), "l"(from) : "memory");
    else
        asm volatile("cp.async.ca.shared.global [%0], [%1], %2;" ::"r"(place), "l"(from), "n"(E * sizeof(T)) : "memory");
#else
    put<E>(to, from);
#endif
}

// Waits for the copies that the warp's lanes started.
__device__ __forceinline__ void await_copies() {
#if __CUDA_ARCH__ >= 800
    asm volatile("cp.async.wait_all;" ::: "memory");
#endif
    __syncwarp();
}

// Coefficients below, on and above the diagonal, and right sides of a block's systems or its tile, the first four arrays of
// the layout; missing rows are those of the identity.
template <class Shape, Access access>
__device__ __forceinline__ void load_rows(const typename Shape::T* const (&arrays)[4], int batch, unsigned block,
                                          typename Shape::T* tile, typename Shape::T (&rows)[4][Shape::P],
                                          const typename Shape::Layout& layout = {}) {
    using T = typename Shape::T;
    constexpr int P = Shape::P, E = Shape::E;
    constexpr bool striped = access != Access::direct;
    const Mine<Shape, striped> mine(batch, block);
    const auto pitch = [&](int k) { return layout.pitch_of(k, Shape::N); };
    const T* const from[4] = {arrays[0] + mine.first(pitch(0)), arrays[1] + mine.first(pitch(1)),
                              arrays[2] + mine.first(pitch(2)), arrays[3] + mine.first(pitch(3))};
#pragma unroll
    for (int i = 0; i < P; i += E) {
        const bool exist = mine.exist(i);
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            T chunk[E];
#pragma unroll
            for (int e = 0; e < E; ++e) chunk[e] = k == 1 ? T{1} : T{};
            if constexpr (access == Access::async) {
                T* const place = tile + k * Shape::rows + mine.place(i);
                if (exist)
                    copy_async<E>(place, from[k] + mine.element(i, pitch(k)));
                else
                    put<E>(place, chunk);
            } else {
                if (exist) get<E>(chunk, from[k] + mine.element(i, pitch(k)));
#pragma unroll
                for (int e = 0; e < E; ++e) rows[k][i + e] = chunk[e];
            }
        }
    }
    if constexpr (access == Access::async) {
        constexpr int own = Shape::widest;
        const Mine<Shape, false> owned(0);
        await_copies();
#pragma unroll
        for (int k = 0; k < 4; ++k)
#pragma unroll
            for (int i = 0; i < P; i += own) get<own>(rows[k] + i, tile + k * Shape::rows + owned.place(i));
    } else if constexpr (striped) {
#pragma unroll
        for (int k = 0; k < 4; ++k) to_owners<Shape>(tile, rows[k]);
    }
}

// Unknowns of a block's systems or its tile, to the fifth array of the layout
template <class Shape, Access access, int K = 1>
__device__ __forceinline__ void store_rows(typename Shape::T* array, int batch, unsigned block, typename Shape::T* tile,
                                           typename Shape::T (&values)[Shape::P],
                                           const typename Shape::Layout& layout = {}) {
    constexpr bool striped = access != Access::direct;
    const Mine<Shape, striped, K> mine(batch, block);
    const auto pitch = layout.pitch_of(4, K * Shape::N);
    if constexpr (striped) from_owners<Shape>(tile, values);
#pragma unroll
    for (int i = 0; i < Shape::P; i += Shape::E)
        if (mine.exist(i)) put<Shape::E>(array + mine.first(pitch) + mine.element(i, pitch), values + i);
}
