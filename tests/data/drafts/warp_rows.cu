// four rows for a block, THREADS for each row
__global__ void row_max(const float* __restrict__ in, float* __restrict__ out, int rows, int cols)
{
    const int row = blockIdx.x * 4 + threadIdx.y;
    if (row >= rows) return;
    float best = -1e30f;
    for (int col = threadIdx.x; col < cols; col += THREADS)
        best = fmaxf(best, in[row * cols + col]);
    for (int offset = THREADS / 2; offset > 0; offset /= 2)
        best = fmaxf(best, __shfl_down_sync(0xffffffff, best, offset));
    if (threadIdx.x == 0) out[row] = best;
}
