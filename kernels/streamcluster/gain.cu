// What a clustering gains if a candidate becomes a centre (k-median). Every point that is nearer to the candidate than
// its cost says would switch, and saves the difference. A point that would not costs the difference more if its centre
// were closed in favour of the candidate: this goes to the row of its centre. The sum of all savings and those of the
// rows decide whether the candidate is opened, and which centres are closed then.

// Place of a point's cost in the work array.
template <bool centre_major>
__device__ size_t place(int centre, int point, int N, int K)
{
    return centre_major ? (size_t)centre * N + point : (size_t)point * K + centre;
}

// P points per thread, B apart, so that the lanes of a warp read neighbours. points is DIM rows of N.
template <int B, int P, int U, bool shared, bool centre_major>
__global__ void __launch_bounds__(B)
costs(const float* __restrict__ points, const float* __restrict__ weight, const float* __restrict__ cost,
      const int* __restrict__ centre, float* __restrict__ saving, float* __restrict__ work, int N, int DIM, int K,
      int candidate)
{
    extern __shared__ float of_candidate[];
    if (shared) {
        for (int d = threadIdx.x; d < DIM; d += B) of_candidate[d] = points[(size_t)d * N + candidate];
        __syncthreads();
    }
    const int first = blockIdx.x * (B * P) + threadIdx.x;
    int point[P];
    float distance[P] = {};
#pragma unroll
    for (int p = 0; p < P; ++p) point[p] = min(first + p * B, N - 1);  // behind the end the last one, not stored
#pragma unroll U
    for (int d = 0; d < DIM; ++d) {
        const float* row = points + (size_t)d * N;
        const float there = shared ? of_candidate[d] : row[candidate];
#pragma unroll
        for (int p = 0; p < P; ++p) {
            const float apart = row[point[p]] - there;
            distance[p] += apart * apart;
        }
    }
#pragma unroll
    for (int p = 0; p < P; ++p) {
        if (first + p * B >= N) break;
        const int i = point[p], own = centre[i];
        const float more = weight[i] * distance[p] - cost[i];
        saving[i] = more < 0.0f ? -more : 0.0f;
        for (int c = 0; c < K; ++c) work[place<centre_major>(c, i, N, K)] = c == own && more >= 0.0f ? more : 0.0f;
    }
}

// A block adds up the row of one centre; the last block adds up the savings.
template <int R, bool centre_major>
__global__ void __launch_bounds__(R)
sums(const float* __restrict__ saving, const float* __restrict__ work, float* __restrict__ gain, int N, int K)
{
    __shared__ float of_warp[R / 32];
    const int row = blockIdx.x;
    float sum = 0.0f;
    for (int i = threadIdx.x; i < N; i += R) sum += row == K ? saving[i] : work[place<centre_major>(row, i, N, K)];
#pragma unroll
    for (int step = 16; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step);
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = sum;
    __syncthreads();
    if (threadIdx.x > 0) return;
    for (int warp = 1; warp < R / 32; ++warp) sum += of_warp[warp];
    gain[row] = sum;
}
