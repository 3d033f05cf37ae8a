// C = A B of row-major matrices, M x K by K x N. A block makes a tile of BM x BN, and takes BK columns of A and rows of
// B at a time through shared memory, in loads of four elements where rows allow it; a thread has TM x TN elements in
// registers. Of small C, S blocks share the K products of each tile; a second launch adds their parts.
#pragma tuner problem(M = 1..1048576, N = 1..1048576, K = 1..1048576, tolerance = 5e-5)
#pragma tuner input A: float32[M, K] = uniform(0, 1)
#pragma tuner input B: float32[K, N] = uniform(0, 1)
#pragma tuner output C: float32[M, N]
#pragma tuner scratch parts: float32[S, M, N]
#pragma tuner check C = matmul(A, B)
#pragma tuner derived THREADS = ceil_div(BM, TM) * ceil_div(BN, TN)
#pragma tuner derived DOWN = ceil_div(M, BM)
#pragma tuner derived LAYERS = ceil_div(DOWN, 65535)
#pragma tuner constraint 64 <= THREADS <= 256
#pragma tuner constraint BM <= BN and TN in (TM, 2 * TM) or BM > BN and TM in (TN, 2 * TN)
#pragma tuner constraint 512 <= BK * (BM + BN) <= 4096
#pragma tuner toml kernel.description = "Product of two matrices, whose inner sums several blocks may share"
#pragma tuner toml kernel.family = "blas"
#pragma tuner toml work.bytes = "4 * (M * K + K * N + M * N)"
#pragma tuner toml work.operations = "2 * M * N * K"
#pragma tuner toml work.rate = "GFlop/s"
#pragma tuner toml work.rate_units = "2 * M * N * K"

template <int V>
struct alignas(4 * V) Pack {
    float value[V];
};

#pragma tuner erange BM: 16, 128, 2
#pragma tuner erange BN: 16, 128, 2
#pragma tuner erange BK: 8, 32, 2
#pragma tuner erange TM: 1, 8, 2
#pragma tuner erange TN: 1, 8, 2
#pragma tuner values S: 1, 4, 16 when M * N <= 2**18 and K >= 512 otherwise 1
#pragma tuner values V: 4 when N % 4 == 0 and K % 4 == 0 otherwise 1
#pragma tuner launch grid(ceil_div(N, BN), ceil_div(DOWN, LAYERS), S * LAYERS) block(THREADS)
template <int BM = 16, int BN = 16, int BK = 16, int TM = 1, int TN = 1, int S = 1, int V = 4>
__global__ void __launch_bounds__((BM / TM) * (BN / TN))
matmul(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, float* __restrict__ parts,
       int M, int N, int K)
{
    constexpr int across = BN / TN, down = BM / TM, threads = across * down;
    constexpr int high = TM < 4 ? TM : 4, wide = TN < 4 ? TN : 4;  // of what a thread reads from shared memory at once
    alignas(16) __shared__ float a[BK][BM + 4];
    alignas(16) __shared__ float b[BK][BN];
    const int x = threadIdx.x % across, y = threadIdx.x / across, part = blockIdx.z % S;
    const int left = blockIdx.x * BN, top = (blockIdx.z / S * gridDim.y + blockIdx.y) * BM;
    const int share = (K + S * BK - 1) / (S * BK) * BK, first = part * share, end = min(K, first + share);
    float sum[TM][TN] = {};
    for (int start = first; start < end; start += BK) {
#pragma unroll
        for (int i = threadIdx.x; i < BM * BK / V; i += threads) {
            const int row = i / (BK / V), k = i % (BK / V) * V;
            Pack<V> pack = {};
            if (top + row < M && start + k < end)
                pack = *reinterpret_cast<const Pack<V>*>(&A[(size_t)(top + row) * K + start + k]);
#pragma unroll
            for (int v = 0; v < V; ++v) a[k + v][row] = pack.value[v];
        }
#pragma unroll
        for (int i = threadIdx.x; i < BK * BN / V; i += threads) {
            const int k = i / (BN / V), column = i % (BN / V) * V;
            Pack<V> pack = {};
            if (start + k < end && left + column < N)
                pack = *reinterpret_cast<const Pack<V>*>(&B[(size_t)(start + k) * N + left + column]);
            *reinterpret_cast<Pack<V>*>(&b[k][column]) = pack;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < BK; ++k) {
            Pack<high> of_a[TM / high];
            Pack<wide> of_b[TN / wide];
#pragma unroll
            for (int i = 0; i < TM / high; ++i)
                of_a[i] = *reinterpret_cast<Pack<high>*>(&a[k][(i * down + y) * high]);
#pragma unroll
            for (int j = 0; j < TN / wide; ++j)
                of_b[j] = *reinterpret_cast<Pack<wide>*>(&b[k][(j * across + x) * wide]);
#pragma unroll
            for (int i = 0; i < TM; ++i)
#pragma unroll
                for (int j = 0; j < TN; ++j)
                    sum[i][j] += of_a[i / high].value[i % high] * of_b[j / wide].value[j % wide];
        }
        __syncthreads();
    }
    float* to = S > 1 ? parts + (size_t)part * M * N : C;
#pragma unroll
    for (int i = 0; i < TM; ++i)
#pragma unroll
        for (int j = 0; j < TN; ++j) {
            const int row = top + (i / high * down + y) * high + i % high;
            const int column = left + (j / wide * across + x) * wide + j % wide;
            if (row < M && column < N) to[(size_t)row * N + column] = sum[i][j];
        }
}

#pragma tuner launch grid(ceil_div(M * N, 256)) block(256) when(S > 1)
template <int S>
__global__ void sum_of_parts(const float* __restrict__ parts, float* __restrict__ C, int M, int N)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= M * N) return;
    float sum = 0.0f;
#pragma unroll
    for (int part = 0; part < S; ++part) sum += parts[(size_t)part * M * N + i];
    C[i] = sum;
}
