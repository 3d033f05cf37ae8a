// Scans of one long row by CUB's DeviceScan, for benchmarks/long_scan_peers.py. With a null `room`, every function sets
// `bytes` and does nothing else.
#include <cub/device/device_scan.cuh>
#include <cuda/functional>

namespace {

template <class T, class Count>
int sum(void* room, size_t* bytes, const T* x, T* y, long long count, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSum(room, *bytes, x, y, Count(count), stream);
}

template <class T, class Count>
int exclusive_sum(void* room, size_t* bytes, const T* x, T* y, long long count, cudaStream_t stream) {
    return cub::DeviceScan::ExclusiveSum(room, *bytes, x, y, Count(count), stream);
}

template <class T, class Count>
int least(void* room, size_t* bytes, const T* x, T* y, long long count, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveScan(room, *bytes, x, y, cuda::minimum<>{}, Count(count), stream);
}

// Tunings of our choice: `delay` and `latency`, in ns, tune the wait for the blocks before.
template <class T, int threads, int items, int delay, int latency>
struct Tuned {
    struct Policy : cub::ChainedPolicy<500, Policy, Policy> {
        using ScanPolicyT =
            cub::AgentScanPolicy<threads, items, T, cub::BLOCK_LOAD_WARP_TRANSPOSE, cub::LOAD_DEFAULT,
                                 cub::BLOCK_STORE_WARP_TRANSPOSE, cub::BLOCK_SCAN_WARP_SCANS,
                                 cub::detail::MemBoundScaling<threads, items, T>,
                                 cub::detail::fixed_delay_constructor_t<delay, latency>>;
    };
    using MaxPolicy = Policy;
};

template <class T, int threads, int items, int delay, int latency>
int sum_tuned(void* room, size_t* bytes, const T* x, T* y, long long count, cudaStream_t stream) {
    using Hub = Tuned<T, threads, items, delay, latency>;
    using Scan = cub::DispatchScan<const T*, T*, cuda::std::plus<>, cub::NullType, unsigned, T, cub::ForceInclusive::No, Hub>;
    return Scan::Dispatch(room, *bytes, x, y, cuda::std::plus<>{}, cub::NullType{}, unsigned(count), stream);
}

}  // namespace
