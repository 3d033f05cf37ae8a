// Transforms that fill a multiprocessor: forward or inverse complex transforms of the rows of x, shape (batch, N),
// out of place, in one pass over device memory. Inverse ones are scaled by 1 / N.
//
// One block holds a whole problem in registers, P points a thread, and leaves no room for a second block whose loads
// would overlap with its arithmetic. So the grid is what fits on the device, a block walks over problems, and with
// `bulk` a bulk copy brings the next problem to shared memory while the present one is transformed. That takes 8 N
// bytes of shared memory; exchanges go by real parts and then imaginary parts, which takes only half of it again.
//
// Tunables: P points per thread (N / P threads); r largest radix; order of the radices; bulk.
#include "block_fft.cuh"
#include "bulk.cuh"

template <int N, int P, int r, Order order>
using InBlock = BlockFft<N, P, Ordered<N, r, order>, float, Padding::stage>;

template <int N, int P, int r, Order order, bool bulk, bool inverse>
__global__ void __launch_bounds__(N / P, 1)
    fft_persistent(const float2* __restrict__ x, float2* __restrict__ y, int batch) {
    using Fft = InBlock<N, P, r, order>;
    constexpr int G = Fft::G;
    constexpr float scale = inverse ? 1.0f / N : 1.0f;
    extern __shared__ float4 memory[];  // the next problem, the exchange, the barrier of the copy
    float2* const next = reinterpret_cast<float2*>(memory);
    float* const room = reinterpret_cast<float*>(next + (bulk ? N : 0));
    unsigned long long* const barrier = reinterpret_cast<unsigned long long*>(room + Fft::pitch);
    const unsigned t = threadIdx.x;

    if (bulk && t == 0) {
        make_barrier(barrier);
        if (blockIdx.x < batch) fetch(next, x + (long long)blockIdx.x * N, N * sizeof(float2), barrier);
    }
    if (bulk) __syncthreads();
    unsigned phase = 0;
    for (long long problem = blockIdx.x; problem < batch; problem += gridDim.x) {
        const float2* const from = (bulk ? next : x + problem * N) + t;
        if (bulk) await(barrier, phase);
        phase ^= 1;
        float2 v[P];
#pragma unroll
        for (int j = 0; j < P; ++j) v[j] = swapped<inverse>(from[j * G]);
        if (bulk) {
            __syncthreads();
            const long long following = problem + gridDim.x;
            if (t == 0 && following < batch) fetch(next, x + following * N, N * sizeof(float2), barrier);
        }
        block_fft<Fft>(v, t, room, !bulk);  // the barrier above also parts the last reads from this problem's writes
        float2* const to = y + problem * N + t;
#pragma unroll
        for (int j = 0; j < P; ++j) {
            const float2 result = swapped<inverse>(v[j]);
            to[j * G] = make_float2(result.x * scale, result.y * scale);
        }
    }
}
