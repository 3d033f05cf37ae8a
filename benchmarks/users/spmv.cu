// y = A x of a sparse matrix by rows (CSR): `lanes` neighbouring threads share a row and add up by shuffles.

template <int block_x, int lanes, int unroll>
__global__ void spmv(const int* __restrict__ offsets, const int* __restrict__ columns,
                     const float* __restrict__ values, const float* __restrict__ x, float* __restrict__ y, int rows) {
    const int row = (blockIdx.x * block_x + threadIdx.x) / lanes, lane = threadIdx.x % lanes;
    float sum = 0.0f;
    if (row < rows) {
        const int end = offsets[row + 1];
#pragma unroll unroll
        for (int k = offsets[row] + lane; k < end; k += lanes) sum += values[k] * __ldg(x + columns[k]);
    }
#pragma unroll
    for (int step = lanes / 2; step > 0; step /= 2) sum += __shfl_down_sync(0xffffffffu, sum, step, lanes);
    if (lane == 0 && row < rows) y[row] = sum;
}

// What answers are compared with; a template, so that it is compiled for that alone.
template <class Real>
__global__ void naive(const int* __restrict__ offsets, const int* __restrict__ columns,
                      const float* __restrict__ values, const float* __restrict__ x, float* __restrict__ y, int rows) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    Real sum = 0;
    for (int k = offsets[row]; k < offsets[row + 1]; ++k) sum += Real(values[k]) * x[columns[k]];
    y[row] = float(sum);
}
