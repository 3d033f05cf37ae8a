#ifndef BLOCK
#define BLOCK 128
#endif

__global__ void rowsum(const float *x, float *y, int rows, int cols)
{
#if USE_SMEM == 1
    extern __shared__ float row[];
    for (int j = threadIdx.x; j < cols; j += BLOCK) row[j] = x[blockIdx.x * cols + j];
    __syncthreads();
#endif
    __shared__ float partial[BLOCK];
    float sum = 0.f;
    for (int j = threadIdx.x; j < cols; j += BLOCK)
#if USE_SMEM == 1
        sum += row[j];
#else
        sum += x[blockIdx.x * cols + j];
#endif
    partial[threadIdx.x] = sum;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int t = 1; t < BLOCK; t++) sum += partial[t];
        y[blockIdx.x] = sum;
    }
}

void launch(const float *x, float *y, int rows, int cols)
{
    rowsum<<<rows, BLOCK, USE_SMEM ? cols * sizeof(float) : 0>>>(x, y, rows, cols);
}
