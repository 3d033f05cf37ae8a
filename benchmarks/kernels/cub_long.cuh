// Scans of one long row by CUB's DeviceScan, for long_scan_peers.py. With a null `room`, every function sets
// `bytes` and does nothing else. `x` has one input.
#include <cub/device/device_scan.cuh>
#include <cuda/functional>
#include <cuda/std/complex>

namespace {

using Complex = cuda::std::complex<float>;

template <class T>
const T* input(const void* const* x, int k = 0) {
    return static_cast<const T*>(x[k]);
}

template <class T, class Count>
int sum(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSum(room, *bytes, input<T>(x), static_cast<T*>(y), Count(n), stream);
}

template <class T, class Count>
int exclusive_sum(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long, cudaStream_t stream) {
    return cub::DeviceScan::ExclusiveSum(room, *bytes, input<T>(x), static_cast<T*>(y), Count(n), stream);
}

template <class T, class Count>
int least(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveScan(room, *bytes, input<T>(x), static_cast<T*>(y), cuda::minimum<>{}, Count(n),
                                          stream);
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

template <class Hub, class Item, class From, class To, class Join>
int tuned(void* room, size_t* bytes, From from, To to, Join join, long long n, cudaStream_t stream) {
    using Scan =
        cub::DispatchScan<From, To, Join, cub::NullType, unsigned, Item, cub::ForceInclusive::No, Hub>;
    return Scan::Dispatch(room, *bytes, from, to, join, cub::NullType{}, unsigned(n), stream);
}

template <class T, int threads, int items, int delay, int latency>
int sum_tuned(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long, cudaStream_t stream) {
    return tuned<Tuned<T, threads, items, delay, latency>, T>(room, bytes, input<T>(x), static_cast<T*>(y),
                                                             cuda::std::plus<>{}, n, stream);
}

}  // namespace
