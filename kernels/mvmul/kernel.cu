// y = A x for a row-major matrix A of H x W. T threads make an element of y, B / T rows a block, in loads of V
// elements. Of few long rows, S blocks share each; a second launch adds their parts.
#pragma tuner problem(H = 1..1073741824, W = 1..1073741824, tolerance = 5e-5)
#pragma tuner input A: float32[H, W] = uniform(0, 1)
#pragma tuner input x: float32[W] = uniform(0, 1)
#pragma tuner output y: float32[H]
#pragma tuner scratch parts: float32[S, H]
#pragma tuner check y = matmul(A, x)
#pragma tuner constraint T <= B
#pragma tuner constraint T >= 16 or W <= 2**20
#pragma tuner constraint S <= 16 or H <= 64 and T >= 64
#pragma tuner constraint W % V == 0
#pragma tuner toml kernel.description = "Product of a matrix and a vector"
#pragma tuner toml kernel.family = "blas"
#pragma tuner toml work = { bytes = "4 * H * W", operations = "2 * H * W", rate = "GB/s", rate_units = "4 * H * W" }

template <int V>
struct alignas(4 * V) Pack {
    float value[V];
};

// The sum over T neighbouring threads, in the first of them; all threads of the block come here.
template <int T>
__device__ float sum_of_threads(float sum)
{
    constexpr int lanes = T < 32 ? T : 32;
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step, lanes);
    if (T > 32) {
        __shared__ float of_warp[32];
        const int warp = threadIdx.x / 32;
        if (threadIdx.x % 32 == 0) of_warp[warp] = sum;
        __syncthreads();
        if (threadIdx.x % T == 0)
            for (int other = 1; other < T / 32; ++other) sum += of_warp[warp + other];
    }
    return sum;
}

#pragma tuner values B: 64, 256, 1024
#pragma tuner values T: 1, 4, 8, 16, 32, 64, 256, 1024
#pragma tuner values V: 1, 2, 4
#pragma tuner values S: 1, 4, 16, 64 when H <= 1024 and W >= 4096 otherwise 1
#pragma tuner launch grid(ceil_div(H, ceil_div(B, T)), S) block(B)
template <int B = 256, int T = 16, int V = 1, int S = 1>
__global__ void mvmul(const float* __restrict__ A, const float* __restrict__ x, float* __restrict__ y,
                      float* __restrict__ parts, int H, int W)
{
    const int row = blockIdx.x * (B / T) + threadIdx.x / T;
    float sum = 0.0f;
    if (row < H) {
        const auto* left = reinterpret_cast<const Pack<V>*>(A + (size_t)row * W);
        const auto* right = reinterpret_cast<const Pack<V>*>(x);
#pragma tuner unroll U: values 1, 4
        for (int i = blockIdx.y * T + threadIdx.x % T; i < W / V; i += S * T) {
            const Pack<V> a = left[i], b = right[i];
#pragma unroll
            for (int v = 0; v < V; ++v) sum += a.value[v] * b.value[v];
        }
    }
    sum = sum_of_threads<T>(sum);
    if (row < H && threadIdx.x % T == 0) (S > 1 ? parts + (size_t)blockIdx.y * H : y)[row] = sum;
}

#pragma tuner launch grid(ceil_div(H, 128)) block(128) when(S > 1)
template <int S>
__global__ void sum_of_parts(const float* __restrict__ parts, float* __restrict__ y, int H)
{
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= H) return;
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < S; ++part) sum += parts[(size_t)part * H + row];
    y[row] = sum;
}
