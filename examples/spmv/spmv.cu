// y = A x of a sparse matrix by rows (CSR). `threads_per_row` neighbouring threads share a row and add up by shuffles.
template <int block_size_x, int threads_per_row, int unroll>
__global__ void spmv(const int* __restrict__ offsets, const int* __restrict__ columns, const float* __restrict__ values,
                     const float* __restrict__ x, float* __restrict__ y, int rows)
{
    const int row = (blockIdx.x * block_size_x + threadIdx.x) / threads_per_row;
    const int lane = threadIdx.x % threads_per_row;
    float sum = 0.0f;
    if (row < rows) {
        const int end = offsets[row + 1];
#pragma unroll unroll
        for (int k = offsets[row] + lane; k < end; k += threads_per_row) sum += values[k] * x[columns[k]];
    }
#pragma unroll
    for (int step = threads_per_row / 2; step > 0; step /= 2)
        sum += __shfl_down_sync(0xffffffffu, sum, step, threads_per_row);
    if (lane == 0 && row < rows) y[row] = sum;
}
