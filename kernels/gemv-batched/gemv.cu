// Products y = A x of many small matrices and vectors.
//
// The matrix of a problem is read once, by packs of up to 16 bytes. The lanes of a warp, or of a part of it, have the
// packs of a column side by side, and groups of them have columns in turn; so have the warps of a problem, if it has
// several. A thread reads `flying` columns before it adds them up.
#include "batched.cuh"

template <class T, int n, int threads>
struct Shape {
    static constexpr int width = access_width<T>(n), packs = n / width;
    static constexpr int warps = threads > kWarp ? threads / kWarp : 1, lanes = threads / warps;
    static constexpr int each = (packs + lanes - 1) / lanes;  // packs of a column in a lane
    // Lanes beyond whole groups have nothing to do.
    static constexpr int groups = packs >= lanes ? 1 : next_pow2(lanes / packs + 1) / 2;
};

template <class T, int n, int threads, int flying, int block>
__global__ void __launch_bounds__(block)
    gemv(const T* __restrict__ A, const T* __restrict__ x, T* __restrict__ y, int batch) {
    using Here = Shape<T, n, threads>;
    constexpr int width = Here::width, packs = Here::packs, lanes = Here::lanes, each = Here::each;
    constexpr int stride = Here::groups * Here::warps;
    const int problem = (int)(blockIdx.x * (block / threads)) + threadIdx.x / threads;
    const int lane = threadIdx.x % lanes, warp = threadIdx.x % threads / lanes;
    const int group = Here::groups > 1 ? lane / packs : 0, place = Here::groups > 1 ? lane % packs : lane;
    const bool live = problem < batch && group < Here::groups;
    const T* const matrix = A + (size_t)problem * n * n;
    const T* const factors = x + (size_t)problem * n;

    T sum[each][width] = {};
#pragma unroll 1
    for (int first = warp * Here::groups + group; first < n; first += flying * stride) {
        Pack<T, width> read[flying][each];
        T factor[flying];
#pragma unroll
        for (int f = 0; f < flying; ++f) {
            const int column = first + f * stride;
            factor[f] = live && column < n ? factors[column] : T(0);
#pragma unroll
            for (int e = 0; e < each; ++e) {
                const int pack = place + e * lanes;
                read[f][e] = {};
                if (live && column < n && pack < packs)
                    read[f][e] = *reinterpret_cast<const Pack<T, width>*>(matrix + column * n + pack * width);
            }
        }
#pragma unroll
        for (int f = 0; f < flying; ++f)
#pragma unroll
            for (int e = 0; e < each; ++e)
#pragma unroll
                for (int w = 0; w < width; ++w) sum[e][w] += read[f][e].at[w] * factor[f];
    }
#pragma unroll
    for (int ahead = Here::groups / 2; ahead > 0; ahead /= 2)
#pragma unroll
        for (int w = 0; w < width; ++w) sum[0][w] += __shfl_down_sync(kAllLanes, sum[0][w], ahead * packs, lanes);

    if constexpr (Here::warps == 1) {
#pragma unroll
        for (int e = 0; e < each; ++e) {
            const int pack = place + e * lanes;
            if (live && group == 0 && pack < packs)
                store<width, width>(y + (size_t)problem * n + pack * width, 0, 1, sum[e]);
        }
    } else {  // the sums of the warps, one behind the other
        extern __shared__ float4 shared[];
        T* const parts = reinterpret_cast<T*>(shared) + threadIdx.x / threads * (Here::warps * n);
#pragma unroll
        for (int e = 0; e < each; ++e) {
            const int pack = place + e * lanes;
            if (group == 0 && pack < packs) store<width, width>(parts + warp * n + pack * width, 0, 1, sum[e]);
        }
        __syncthreads();
        for (int row = threadIdx.x % threads; row < n && problem < batch; row += threads) {
            T total = 0;
#pragma unroll
            for (int w = 0; w < Here::warps; ++w) total += parts[w * n + row];
            y[(size_t)problem * n + row] = total;
        }
    }
}
