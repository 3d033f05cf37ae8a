// Scalar products of P pairs of vectors of L elements. T threads make one, B / T a block at a time, in loads of V
// elements; blocks are as many as there is work for, or CAP at most. Of few long pairs, S blocks share each; a second
// launch adds their parts.
#pragma tuner problem(P = 1..536870912, L = 1..1073741824, tolerance = 5e-5)
#pragma tuner input a: float32[P, L] = uniform(0, 1)
#pragma tuner input b: float32[P, L] = uniform(0, 1)
#pragma tuner output c: float32[P]
#pragma tuner scratch parts: float32[S, P]
#pragma tuner check c = sum(a * b, axis = 1)
#pragma tuner constraint T <= B
#pragma tuner constraint T >= 16 or L <= 2**20
#pragma tuner constraint L % V == 0
#pragma tuner constraint CAP == 128 or max(CAP, 128) < NEEDED
#pragma tuner derived NEEDED = ceil_div(P, ceil_div(B, T))
#pragma tuner toml tunables.CAP = [128, 1024, 0]
#pragma tuner toml default.CAP = 128
#pragma tuner toml kernel.description = "Scalar products of pairs of vectors"
#pragma tuner toml kernel.family = "blas"
#pragma tuner toml work = { bytes = "8 * P * L", operations = "2 * P * L", rate = "GB/s", rate_units = "8 * P * L" }

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
        __syncthreads();  // they are read before the next ones come
    }
    return sum;
}

#pragma tuner values B: 64, 256, 1024
#pragma tuner erange T: 4, 1024, 2
#pragma tuner values V: 1, 4
#pragma tuner values S: 1, 8, 64 when P <= 128 and L >= 16384 otherwise 1
#pragma tuner launch grid(select(CAP == 0, NEEDED, min(CAP, NEEDED)), S) block(B)
template <int B = 256, int T = 256, int V = 1, int S = 1>
__global__ void scalar_product(const float* __restrict__ a, const float* __restrict__ b, float* __restrict__ c,
                               float* __restrict__ parts, int P, int L)
{
    constexpr int vectors = B / T;
    for (int first = blockIdx.x * vectors; first < P; first += gridDim.x * vectors) {
        const int vector = first + threadIdx.x / T;
        float sum = 0.0f;
        if (vector < P) {
            const auto* left = reinterpret_cast<const Pack<V>*>(a + (size_t)vector * L);
            const auto* right = reinterpret_cast<const Pack<V>*>(b + (size_t)vector * L);
#pragma tuner unroll U: values 1, 4
            for (int i = blockIdx.y * T + threadIdx.x % T; i < L / V; i += S * T) {
                const Pack<V> x = left[i], y = right[i];
#pragma unroll
                for (int v = 0; v < V; ++v) sum += x.value[v] * y.value[v];
            }
        }
        sum = sum_of_threads<T>(sum);
        if (vector < P && threadIdx.x % T == 0) (S > 1 ? parts + (size_t)blockIdx.y * P : c)[vector] = sum;
    }
}

#pragma tuner launch grid(1) block(128) when(S > 1)
template <int S>
__global__ void sum_of_parts(const float* __restrict__ parts, float* __restrict__ c, int P)
{
    if (threadIdx.x >= P) return;
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < S; ++part) sum += parts[(size_t)part * P + threadIdx.x];
    c[threadIdx.x] = sum;
}
