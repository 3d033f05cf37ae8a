// Scans of rows by the device-wide algorithms of CUB, for peer_libraries.py. Rows have 2^log elements. With a
// null `room`, every function sets `bytes` and does nothing else. Keys and offsets are made from the index: no traffic.
#include <cub/device/device_scan.cuh>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#if CUB_VERSION >= 300500
#include <cub/device/device_segmented_scan.cuh>
#include <cuda/std/execution>
#endif

namespace {

template <int log, typename Key>
struct RowOf {
    __host__ __device__ Key operator()(unsigned i) const { return Key(i >> log); }
};

template <int log>
struct FirstOf {
    __host__ __device__ int operator()(int row) const { return row << log; }
};

// of two neighbouring indices: the second begins no row
template <int log>
struct SameRow {
    __host__ __device__ bool operator()(unsigned, unsigned second) const { return second & ((1u << log) - 1); }
};

template <int log, typename Key>
int by_key(void* room, size_t* bytes, const float* x, float* y, int batch, cudaStream_t stream) {
    auto keys = thrust::make_transform_iterator(thrust::counting_iterator<unsigned>(0), RowOf<log, Key>{});
    return cub::DeviceScan::InclusiveSumByKey(
        room, *bytes, keys, x, y, batch << log, cuda::std::equal_to<>{}, stream);
}

template <int log>
int by_index(void* room, size_t* bytes, const float* x, float* y, int batch, cudaStream_t stream) {
    thrust::counting_iterator<unsigned> keys(0);
    return cub::DeviceScan::InclusiveSumByKey(room, *bytes, keys, x, y, batch << log, SameRow<log>{}, stream);
}

#if CUB_VERSION >= 300500
template <int log>
int segmented(void* room, size_t* bytes, const float* x, float* y, int batch, cudaStream_t stream) {
    auto first = thrust::make_transform_iterator(thrust::counting_iterator<int>(0), FirstOf<log>{});
    return cub::DeviceSegmentedScan::InclusiveSegmentedSum(room, *bytes, x, y, first, first + 1, batch, stream);
}

template <int threads, int items, int delay, int latency>
struct KeyTuned {
    __host__ __device__ constexpr auto operator()(cuda::compute_capability) const -> cub::ScanByKeyPolicy {
        return {
            cub::ScanByKeyAlgorithm::lookback,
            {threads,
             items,
             cub::BLOCK_LOAD_WARP_TRANSPOSE,
             cub::LOAD_DEFAULT,
             cub::BLOCK_STORE_WARP_TRANSPOSE,
             cub::BLOCK_SCAN_WARP_SCANS,
             {delay ? cub::LookbackDelayAlgorithm::fixed_delay : cub::LookbackDelayAlgorithm::no_delay, delay, latency}},
        };
    }
};

template <int threads, int items, cub::BlockLoadAlgorithm load, cub::BlockStoreAlgorithm store, int segments>
struct Tuned {
    __host__ __device__ constexpr auto operator()(cuda::compute_capability) const -> cub::SegmentedScanPolicy {
        return {{threads, items, load, cub::LOAD_DEFAULT, store, cub::BLOCK_SCAN_WARP_SCANS, segments}};
    }
};

// `delay` and `latency`, in ns, tune the wait for the block before
template <int log, int threads, int items, int delay, int latency>
int by_key_tuned(void* room, size_t* bytes, const float* x, float* y, int batch, cudaStream_t stream) {
    auto keys = thrust::make_transform_iterator(thrust::counting_iterator<unsigned>(0), RowOf<log, unsigned short>{});
    return cub::detail::scan_by_key::dispatch<float>(
        room, *bytes, keys, x, y, cuda::std::equal_to<>{}, cuda::std::plus<>{}, cub::NullType{},
        unsigned(batch) << log, stream, KeyTuned<threads, items, delay, latency>{});
}

// several rows per block: the public functions of CUB 3.5 give each block one
template <int log, int threads, int items, cub::BlockLoadAlgorithm load, cub::BlockStoreAlgorithm store, int segments>
int segmented_tuned(void* room, size_t* bytes, const float* x, float* y, int batch, cudaStream_t stream) {
    auto first = thrust::make_transform_iterator(thrust::counting_iterator<int>(0), FirstOf<log>{});
    return cub::detail::segmented_scan::dispatch(
        room, *bytes, x, y, batch, first, first + 1, first, cuda::std::plus<>{}, cub::NullType{}, segments,
        cub::detail::segmented_scan::worker::block, stream, Tuned<threads, items, load, store, segments>{});
}
#endif

}  // namespace
