// Many products of small square matrices: C = A B, of n rows and columns each.
//
// block_x * block_y threads hold one A and one B whole in shared memory, and a block takes block_z such problems. A
// thread computes elements that lie block_x columns and block_y rows apart. With `padded` a row of A is one word
// longer, so that threads of different rows read different banks.

template <int n, int block_x, int block_y, int block_z, int unroll, bool padded>
__global__ void __launch_bounds__(block_x * block_y * block_z)
    bgemm(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int problems) {
    constexpr int threads = block_x * block_y, stride = n + padded, high = n / block_y, wide = n / block_x;
    __shared__ float a[block_z][n * stride], b[block_z][n * n];
    const int problem = blockIdx.x * block_z + threadIdx.z, thread = threadIdx.y * block_x + threadIdx.x;
    const size_t first = size_t(problem) * n * n;
    if (problem < problems) {
        for (int e = thread; e < n * n; e += threads) {
            a[threadIdx.z][e / n * stride + e % n] = A[first + e];
            b[threadIdx.z][e] = B[first + e];
        }
    }
    __syncthreads();
    if (problem >= problems) return;
    float sums[high][wide] = {};
#pragma unroll unroll
    for (int k = 0; k < n; ++k) {
        float row[wide];
#pragma unroll
        for (int i = 0; i < wide; ++i) row[i] = b[threadIdx.z][k * n + threadIdx.x + i * block_x];
#pragma unroll
        for (int j = 0; j < high; ++j) {
            const float left = a[threadIdx.z][(threadIdx.y + j * block_y) * stride + k];
#pragma unroll
            for (int i = 0; i < wide; ++i) sums[j][i] += left * row[i];
        }
    }
#pragma unroll
    for (int j = 0; j < high; ++j) {
#pragma unroll
        for (int i = 0; i < wide; ++i) {
            C[first + (threadIdx.y + j * block_y) * n + threadIdx.x + i * block_x] = sums[j][i];
        }
    }
}

// What answers are compared with; a template, so that it is compiled for that alone.
template <int n>
__global__ void naive(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int problems) {
    const size_t element = size_t(blockIdx.x) * blockDim.x + threadIdx.x;
    if (element >= size_t(problems) * n * n) return;
    const size_t row = element / n, first = element / (n * n) * (n * n), column = element % n;
    double sum = 0;
    for (int k = 0; k < n; ++k) sum += double(A[row * n + k]) * B[first + k * n + column];
    C[element] = float(sum);
}
