// Scans of one long row by CUB's DeviceScan, for long_scan_peers.py. With a null `room`, every function sets
// `bytes` and does nothing else. `x` are the inputs, `ends` counts offsets.
#include <cub/device/device_scan.cuh>
#include <cuda/functional>
#include <cuda/std/complex>
#include <thrust/iterator/counting_iterator.h>
#include <thrust/iterator/transform_iterator.h>
#include <thrust/iterator/transform_output_iterator.h>

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

// --- segments ----------------------------------------------------------------------------------

// Flags as keys: an element is of the segment before it where it has no flag. So no key is made or read.
struct SameSegment {
    __host__ __device__ bool operator()(unsigned char, unsigned char flag) const { return flag == 0; }
};

template <class T, class Count>
int flagged_by_key(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long,
                   cudaStream_t stream) {
    return cub::DeviceScan::InclusiveSumByKey(room, *bytes, input<unsigned char>(x, 1), input<T>(x),
                                              static_cast<T*>(y), Count(n), SameSegment{}, stream);
}

template <class T>
struct Flagged {
    T value;
    int flag;
};

template <class T>
struct MakeFlagged {
    const T* x;
    const unsigned char* flags;
    __host__ __device__ Flagged<T> operator()(long long i) const { return {x[i], flags[i]}; }
};

template <class T>
struct JoinFlagged {
    __host__ __device__ Flagged<T> operator()(const Flagged<T>& a, const Flagged<T>& b) const {
        return {b.flag ? b.value : a.value + b.value, a.flag | b.flag};
    }
};

template <class T>
struct ValueOf {
    __host__ __device__ T operator()(const Flagged<T>& item) const { return item.value; }
};

template <class T>
auto flagged_items(const void* const* x) {
    const MakeFlagged<T> make{input<T>(x), input<unsigned char>(x, 1)};
    return thrust::make_transform_iterator(thrust::counting_iterator<long long>(0), make);
}

template <class T>
auto values_to(void* y) {
    return thrust::make_transform_output_iterator(static_cast<T*>(y), ValueOf<T>{});
}

template <class T, class Count>
int flagged_pairs(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long,
                  cudaStream_t stream) {
    return cub::DeviceScan::InclusiveScan(room, *bytes, flagged_items<T>(x), values_to<T>(y), JoinFlagged<T>{}, Count(n),
                                          stream);
}

__global__ void set_flags(const int* offsets, long long ends, unsigned char* flags, long long n) {
    const long long k = blockIdx.x * (long long)blockDim.x + threadIdx.x;
    if (k < ends && offsets[k] < n) flags[offsets[k]] = 1;
}

// Offsets become flags behind the room of the scan, which then goes by key.
template <class T, class Count>
int offsets_by_flags(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long ends,
                     cudaStream_t stream) {
    size_t scan = 0;
    const void* inputs[2] = {x[0], nullptr};
    if (const int error = flagged_by_key<T, Count>(nullptr, &scan, inputs, y, n, 0, stream)) return error;
    const size_t padded = (scan + 255) / 256 * 256;
    *bytes = padded + n;
    if (!room) return 0;
    unsigned char* const flags = static_cast<unsigned char*>(room) + padded;
    if (const int error = cudaMemsetAsync(flags, 0, n, stream)) return error;
    set_flags<<<unsigned((ends + 255) / 256), 256, 0, stream>>>(input<int>(x, 1), ends, flags, n);
    inputs[1] = flags;
    return flagged_by_key<T, Count>(room, &scan, inputs, y, n, 0, stream);
}

// Offsets are searched for every element.
struct SegmentOf {
    const int* offsets;
    long long ends;
    __host__ __device__ int operator()(long long i) const {
        long long low = 0, high = ends;
        while (low < high) {
            const long long middle = (low + high) / 2;
            if (offsets[middle] <= i) low = middle + 1;
            else high = middle;
        }
        return int(low);
    }
};

template <class T, class Count>
int offsets_by_search(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long ends,
                      cudaStream_t stream) {
    const SegmentOf find{input<int>(x, 1), ends};
    const auto keys = thrust::make_transform_iterator(thrust::counting_iterator<long long>(0), find);
    return cub::DeviceScan::InclusiveSumByKey(room, *bytes, keys, input<T>(x), static_cast<T*>(y), Count(n),
                                              cuda::std::equal_to<>{}, stream);
}

// --- linear recurrences ------------------------------------------------------------------------

template <class T>
struct alignas(2 * sizeof(T)) Map {
    T factor, summand;
};

template <class T>
struct MakeMap {
    const T *a, *b;
    __host__ __device__ Map<T> operator()(long long i) const { return {a[i], b[i]}; }
};

template <class T>
struct Compose {
    __host__ __device__ Map<T> operator()(const Map<T>& before, const Map<T>& after) const {
        return {before.factor * after.factor, after.factor * before.summand + after.summand};
    }
};

template <class T>
struct SummandOf {
    __host__ __device__ T operator()(const Map<T>& map) const { return map.summand; }
};

template <class T>
auto maps_of(const void* const* x) {
    const MakeMap<T> make{input<T>(x), input<T>(x, 1)};
    return thrust::make_transform_iterator(thrust::counting_iterator<long long>(0), make);
}

template <class T>
auto summands_to(void* y) {
    return thrust::make_transform_output_iterator(static_cast<T*>(y), SummandOf<T>{});
}

template <class T, class Count>
int recurrence(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long, cudaStream_t stream) {
    return cub::DeviceScan::InclusiveScan(room, *bytes, maps_of<T>(x), summands_to<T>(y), Compose<T>{}, Count(n), stream);
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

template <class T, int threads, int items, int delay, int latency>
int flagged_pairs_tuned(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long,
                        cudaStream_t stream) {
    return tuned<Tuned<Flagged<T>, threads, items, delay, latency>, Flagged<T>>(
        room, bytes, flagged_items<T>(x), values_to<T>(y), JoinFlagged<T>{}, n, stream);
}

template <class T, int threads, int items, int delay, int latency>
int recurrence_tuned(void* room, size_t* bytes, const void* const* x, void* y, long long n, long long,
                     cudaStream_t stream) {
    return tuned<Tuned<Map<T>, threads, items, delay, latency>, Map<T>>(room, bytes, maps_of<T>(x), summands_to<T>(y),
                                                                       Compose<T>{}, n, stream);
}

}  // namespace
