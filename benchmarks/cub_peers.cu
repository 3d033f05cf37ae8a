// CUB scans of rows, for benchmarks/peers.py: one block per row, one segmented scan of all, one device scan a row.
//   nvcc -O3 -std=c++17 -arch=native -shared -Xcompiler -fPIC -o libcub_peers.so cub_peers.cu
#include <cub/cub.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>

namespace {

template <int threads, int items>
__global__ void __launch_bounds__(threads) scan_row(const float* x, float* y) {
    using Load = cub::BlockLoad<float, threads, items, cub::BLOCK_LOAD_WARP_TRANSPOSE>;
    using Scan = cub::BlockScan<float, threads, cub::BLOCK_SCAN_WARP_SCANS>;
    using Store = cub::BlockStore<float, threads, items, cub::BLOCK_STORE_WARP_TRANSPOSE>;
    __shared__ union {
        typename Load::TempStorage load;
        typename Scan::TempStorage scan;
        typename Store::TempStorage store;
    } room;
    const size_t first = size_t(blockIdx.x) * (threads * items);
    float values[items];
    Load(room.load).Load(x + first, values);
    __syncthreads();
    Scan(room.scan).InclusiveSum(values, values);
    __syncthreads();
    Store(room.store).Store(y + first, values);
}

template <int threads, int items>
bool row_scan(const float* x, float* y, int n, long batch, cudaStream_t stream) {
    if (threads * items != n) return false;
    if constexpr (threads * items <= 8192) {  // static shared memory ends there
        scan_row<threads, items><<<dim3(unsigned(batch)), threads, 0, stream>>>(x, y);
        return true;
    }
    return false;
}

template <int items>
bool with_items(const float* x, float* y, int n, long batch, cudaStream_t s) {
    return row_scan<32, items>(x, y, n, batch, s) || row_scan<64, items>(x, y, n, batch, s) ||
           row_scan<128, items>(x, y, n, batch, s) || row_scan<256, items>(x, y, n, batch, s) ||
           row_scan<512, items>(x, y, n, batch, s) || row_scan<1024, items>(x, y, n, batch, s);
}

struct RowOf {
    int n;
    __host__ __device__ unsigned operator()(long i) const { return unsigned(i / n); }
};

}  // namespace

extern "C" {

// 0 when rows of n elements can be scanned by blocks of n / items threads
int block_scan(const float* x, float* y, int n, long batch, int items, cudaStream_t stream) {
    switch (items) {
        case 2: return !with_items<2>(x, y, n, batch, stream);
        case 4: return !with_items<4>(x, y, n, batch, stream);
        case 8: return !with_items<8>(x, y, n, batch, stream);
        case 16: return !with_items<16>(x, y, n, batch, stream);
    }
    return 1;
}

// With a null `room`, sets `bytes`; the keys are made from the index, so that they cost no traffic.
int segmented_scan(void* room, size_t* bytes, const float* x, float* y, int n, long batch, cudaStream_t stream) {
    auto keys = thrust::make_transform_iterator(thrust::counting_iterator<long>(0), RowOf{n});
    return cub::DeviceScan::InclusiveSumByKey(room, *bytes, keys, x, y, n * batch, cuda::std::equal_to<>{}, stream);
}

int device_scans(void* room, size_t* bytes, const float* x, float* y, int n, long batch, cudaStream_t stream) {
    if (!room) return cub::DeviceScan::InclusiveSum(room, *bytes, x, y, n, stream);
    for (long row = 0; row < batch; ++row)
        if (int trouble = cub::DeviceScan::InclusiveSum(room, *bytes, x + row * n, y + row * n, n, stream))
            return trouble;
    return 0;
}
}
