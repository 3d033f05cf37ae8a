// Products C = A B of many small square matrices.
//
// A block has C, or a strip of its columns. A slab of `depth` columns of A and rows of B at a time is in shared memory, while the next one is on its way to
// registers. A thread has rows x columns numbers of C; with tensor cores, a warp has as many in tiles.
#include "stream.cuh"

// Brings slabs from device memory to registers and from there to shared memory.
template <class Tile, class T, int n, int strip, int depth>
struct Slab {
    static constexpr int width = access_width<T>(n), threads = Tile::threads;
    static constexpr int packs_a = (n * depth / width + threads - 1) / threads;  // of a thread
    static constexpr int packs_b = (strip * depth / width + threads - 1) / threads;

    Pack<T, width> left[packs_a], right[packs_b];

    // The slab at k, of which B has `columns` columns.
    __device__ __forceinline__ void fetch(const T* A, const T* B, int k, int columns, int rank) {
#pragma unroll
        for (int p = 0; p < packs_a; ++p) {
            const int e = (rank + p * threads) * width;
            left[p] = {};
            if (columns > 0 && e < n * depth && k * n + e < n * n)
                left[p] = *reinterpret_cast<const Pack<T, width>*>(A + k * n + e);
        }
#pragma unroll
        for (int p = 0; p < packs_b; ++p) {
            const int e = (rank + p * threads) * width;
            right[p] = {};
            if (e < columns * depth && k + e % depth < n)
                right[p] = *reinterpret_cast<const Pack<T, width>*>(B + e / depth * n + k + e % depth);
        }
    }

    __device__ __forceinline__ void put(T* a, T* b, int rank) const {
#pragma unroll
        for (int p = 0; p < packs_a; ++p) {
            const int e = (rank + p * threads) * width;
            if (e < n * depth) *reinterpret_cast<Pack<T, width>*>(a + e / n * Tile::leading_a + e % n) = left[p];
        }
#pragma unroll
        for (int p = 0; p < packs_b; ++p) {
            const int e = (rank + p * threads) * width;
            if (e < strip * depth)
                *reinterpret_cast<Pack<T, width>*>(b + e / depth * Tile::leading_b + e % depth) = right[p];
        }
    }
};

// A block has one strip of one product in each slot.
template <class Tile, int strip, int depth, class T, int n>
__device__ __forceinline__ void multiply(const T* A, const T* B, T* C, int batch, T* a, int problem, int rank) {
    constexpr int strips = (n + strip - 1) / strip, slabs = (n + depth - 1) / depth, buffers = slabs > 1 ? 2 : 1;
    constexpr int a_elements = Tile::padded * Tile::leading_a, b_elements = Tile::breadth * Tile::leading_b;
    const int start = blockIdx.x % strips * strip;
    const int width = problem < batch ? min(strip, n - start) : 0;  // columns that there are
    const T* const left = A + (size_t)problem * n * n;
    const T* const right = B + (size_t)problem * n * n + start * n;
    T* const b = a + buffers * a_elements;

    pad<Tile, depth>(a, b, rank);
    Slab<Tile, T, n, strip, depth> slab;
    slab.fetch(left, right, 0, width, rank);
    slab.put(a, b, rank);
    __syncthreads();
    Tile tile(rank);
#pragma unroll 1
    for (int s = 0; s < slabs; ++s) {
        const int now = s % buffers, next = (s + 1) % buffers;
        if (s + 1 < slabs) slab.fetch(left, right, (s + 1) * depth, width, rank);
        tile.add(a + now * a_elements, b + now * b_elements);
        if (s + 1 < slabs) {
            slab.put(a + next * a_elements, b + next * b_elements, rank);
            __syncthreads();
        }
    }
    tile.write_to(C + (size_t)problem * n * n + start * n, width);
}

template <class T, int n, int strip, Algorithm algorithm, int rows, int columns, int depth, int problems,
          int blocks, int ahead, int shared_bytes>
__global__ void __launch_bounds__(problems* TileOf<T, n, strip, algorithm, rows, columns, depth>::threads, blocks)
    gemm(const T* __restrict__ A, const T* __restrict__ B, T* __restrict__ C, int batch) {
    using Tile = TileOf<T, n, strip, algorithm, rows, columns, depth>;
    constexpr int strips = (n + strip - 1) / strip, buffers = ahead > 0 ? ahead + 1 : depth < n ? 2 : 1;
    constexpr int elements = Tile::padded * Tile::leading_a + Tile::breadth * Tile::leading_b;
    constexpr int pitch = odd_multiple(buffers * elements, kWide<T>);
    static_assert(shared_bytes == problems * pitch * sizeof(T), "the kernel file counts the same bytes");
    static_assert(problems == 1 || strips == 1, "problems that share a block are whole");
    extern __shared__ float4 shared[];
    const int slot = threadIdx.x / Tile::threads, rank = threadIdx.x % Tile::threads;
    T* const memory = reinterpret_cast<T*>(shared) + slot * pitch;
    if constexpr (ahead > 0)
        multiply_stream<Tile, strip, depth, problems, ahead, T, n>(A, B, C, batch, memory, slot, rank);
    else
        multiply<Tile, strip, depth, T, n>(A, B, C, batch, memory, blockIdx.x / strips * problems + slot, rank);
}
