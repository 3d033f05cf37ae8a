// Scans of rows by the parts of CUB that work inside a block, for peer_libraries.py. Rows have n elements, a
// power of two of 64 or more. Every launcher returns the launch's error.
#include <cub/block/block_load.cuh>
#include <cub/block/block_scan.cuh>
#include <cub/block/block_store.cuh>
#include <cub/warp/warp_load.cuh>
#include <cub/warp/warp_scan.cuh>
#include <cub/warp/warp_store.cuh>

namespace {

__device__ float sum_up(float4& v) {
    v.y += v.x, v.z += v.y, v.w += v.z;
    return v.w;
}

__device__ float sum_up(float2& v) {
    v.y += v.x;
    return v.y;
}

__device__ void add(float4& v, float before) { v.x += before, v.y += before, v.z += before, v.w += before; }

__device__ void add(float2& v, float before) { v.x += before, v.y += before; }

// `vectors` chunks of a row, each held by the neighbouring lanes of a warp; returns the sum of all.
template <int lanes, int vectors, typename V>
__device__ float scan_chunks(V (&values)[vectors], typename cub::WarpScan<float, lanes>::TempStorage& room) {
    float carry = 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        float before, total;
        cub::WarpScan<float, lanes>(room).ExclusiveSum(sum_up(values[v]), before, total);
        add(values[v], before + carry);
        carry += total;
    }
    return carry;
}

// `lanes` threads of a warp share a row, or `rows` rows, all of whose loads are issued first.
template <typename V, int n, int lanes, int rows, int threads, bool persistent>
__global__ void __launch_bounds__(threads) warp_rows(const V* x, V* y, int tiles) {
    constexpr int groups = threads / lanes, width = sizeof(V) / sizeof(float), vectors = n / (lanes * width);
    __shared__ typename cub::WarpScan<float, lanes>::TempStorage room[groups];
    const int group = threadIdx.x / lanes, lane = threadIdx.x % lanes;
    for (int tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
        const size_t first = size_t(tile) * (rows * groups * (n / width)) + group * (n / width) + lane;
        V values[rows][vectors];
#pragma unroll
        for (int r = 0; r < rows; ++r)
#pragma unroll
            for (int v = 0; v < vectors; ++v) values[r][v] = x[first + r * (groups * (n / width)) + v * lanes];
#pragma unroll
        for (int r = 0; r < rows; ++r) scan_chunks<lanes>(values[r], room[group]);
#pragma unroll
        for (int r = 0; r < rows; ++r)
#pragma unroll
            for (int v = 0; v < vectors; ++v) y[first + r * (groups * (n / width)) + v * lanes] = values[r][v];
        if constexpr (!persistent) break;
    }
}

// `lanes` threads of a warp share a row, each of them n / lanes neighbouring elements.
template <int n, int lanes, int threads, cub::WarpLoadAlgorithm load, cub::WarpStoreAlgorithm store>
__global__ void __launch_bounds__(threads) warp_items(const float* x, float* y) {
    constexpr int items = n / lanes, groups = threads / lanes;
    using Load = cub::WarpLoad<float, items, load, lanes>;
    using Scan = cub::WarpScan<float, lanes>;
    using Store = cub::WarpStore<float, items, store, lanes>;
    __shared__ union {
        typename Load::TempStorage loading;
        typename Scan::TempStorage scanning;
        typename Store::TempStorage storing;
    } room[groups];
    const int group = threadIdx.x / lanes;
    const size_t first = (size_t(blockIdx.x) * groups + group) * n;
    float values[items];
    Load(room[group].loading).Load(x + first, values);
#pragma unroll
    for (int i = 1; i < items; ++i) values[i] += values[i - 1];
    float before;
    __syncwarp();
    Scan(room[group].scanning).ExclusiveSum(values[items - 1], before);
#pragma unroll
    for (int i = 0; i < items; ++i) values[i] += before;
    __syncwarp();
    Store(room[group].storing).Store(y + first, values);
}

// A block scans a row by one BlockScan.
template <int n, int threads, cub::BlockLoadAlgorithm load, cub::BlockStoreAlgorithm store, cub::BlockScanAlgorithm scan>
__global__ void __launch_bounds__(threads) block_row(const float* x, float* y) {
    constexpr int items = n / threads;
    using Load = cub::BlockLoad<float, threads, items, load>;
    using Scan = cub::BlockScan<float, threads, scan>;
    using Store = cub::BlockStore<float, threads, items, store>;
    __shared__ union {
        typename Load::TempStorage loading;
        typename Scan::TempStorage scanning;
        typename Store::TempStorage storing;
    } room;
    const size_t first = size_t(blockIdx.x) * n;
    float values[items];
    Load(room.loading).Load(x + first, values);
    __syncthreads();
    Scan(room.scanning).InclusiveSum(values, values);
    __syncthreads();
    Store(room.storing).Store(y + first, values);
}

// A block scans a row in chunks of a float4 per thread, all of whose loads are issued first. `blocks` is the least
// number of blocks on a multiprocessor, which limits the registers.
template <int n, int threads, int blocks, cub::BlockScanAlgorithm scan>
__global__ void __launch_bounds__(threads, blocks) block_chunks(const float4* x, float4* y) {
    constexpr int vectors = n / (4 * threads);
    using Scan = cub::BlockScan<float, threads, scan>;
    __shared__ typename Scan::TempStorage room[vectors];
    const size_t first = size_t(blockIdx.x) * (n / 4) + threadIdx.x;
    float4 values[vectors];
#pragma unroll
    for (int v = 0; v < vectors; ++v) values[v] = x[first + v * threads];
    float carry = 0;
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        float before, total;
        Scan(room[v]).ExclusiveSum(sum_up(values[v]), before, total);
        add(values[v], before + carry);
        carry += total;
    }
#pragma unroll
    for (int v = 0; v < vectors; ++v) y[first + v * threads] = values[v];
}

// Each warp of a block scans a part of the row by WarpScan, and then the totals of all warps: one barrier.
template <int n, int threads, int blocks>
__global__ void __launch_bounds__(threads, blocks) warps_of_row(const float4* x, float4* y) {
    constexpr int warps = threads / 32, vectors = n / (4 * threads);
    using Scan = cub::WarpScan<float>;
    __shared__ typename Scan::TempStorage room[warps];
    __shared__ float totals[warps];
    const int warp = threadIdx.x / 32, lane = threadIdx.x % 32;
    const size_t first = size_t(blockIdx.x) * (n / 4) + warp * (32 * vectors) + lane;
    float4 values[vectors];
#pragma unroll
    for (int v = 0; v < vectors; ++v) values[v] = x[first + v * 32];
    const float own = scan_chunks<32>(values, room[warp]);
    if (lane == 0) totals[warp] = own;
    __syncthreads();
    float before, total = lane < warps ? totals[lane] : 0;
    Scan(room[warp]).ExclusiveSum(total, before);
    before = Scan(room[warp]).Broadcast(before, warp);
#pragma unroll
    for (int v = 0; v < vectors; ++v) {
        add(values[v], before);
        y[first + v * 32] = values[v];
    }
}

inline int multiprocessors() {
    int device = 0, count = 0;
    cudaGetDevice(&device);
    cudaDeviceGetAttribute(&count, cudaDevAttrMultiProcessorCount, device);
    return count;
}

template <typename V, int n, int lanes, int rows, int threads, int blocks = 0>
int launch_warp_rows(const float* x, float* y, int batch, cudaStream_t stream) {
    const int tiles = batch / (rows * (threads / lanes)), grid = blocks ? blocks * multiprocessors() : tiles;
    warp_rows<V, n, lanes, rows, threads, (blocks > 0)>
        <<<grid, threads, 0, stream>>>(reinterpret_cast<const V*>(x), reinterpret_cast<V*>(y), tiles);
    return cudaGetLastError();
}

template <int n, int lanes, int threads, cub::WarpLoadAlgorithm load, cub::WarpStoreAlgorithm store>
int launch_warp_items(const float* x, float* y, int batch, cudaStream_t stream) {
    warp_items<n, lanes, threads, load, store><<<batch / (threads / lanes), threads, 0, stream>>>(x, y);
    return cudaGetLastError();
}

template <int n, int threads, cub::BlockLoadAlgorithm load, cub::BlockStoreAlgorithm store, cub::BlockScanAlgorithm scan>
int launch_block_row(const float* x, float* y, int batch, cudaStream_t stream) {
    block_row<n, threads, load, store, scan><<<batch, threads, 0, stream>>>(x, y);
    return cudaGetLastError();
}

template <int n, int threads, int blocks, cub::BlockScanAlgorithm scan>
int launch_block_chunks(const float* x, float* y, int batch, cudaStream_t stream) {
    block_chunks<n, threads, blocks, scan>
        <<<batch, threads, 0, stream>>>(reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y));
    return cudaGetLastError();
}

template <int n, int threads, int blocks>
int launch_warps_of_row(const float* x, float* y, int batch, cudaStream_t stream) {
    warps_of_row<n, threads, blocks>
        <<<batch, threads, 0, stream>>>(reinterpret_cast<const float4*>(x), reinterpret_cast<float4*>(y));
    return cudaGetLastError();
}

}  // namespace
