#include <stdlib.h>
#ifndef BLOCK_SIZE
#define BLOCK_SIZE 256
#endif
#define IN_RANGE(x, min, max) ((x) >= (min) && (x) <= (max))
#define MIN(a, b) ((a) <= (b) ? (a) : (b))

__global__ void dynproc(int iteration, int *gpuWall, int *gpuSrc, int *gpuResults, int cols)
{
    __shared__ int prev[BLOCK_SIZE];
    int tx = threadIdx.x;
    int xidx = BLOCK_SIZE * blockIdx.x + tx;
    prev[tx] = xidx < cols ? gpuSrc[xidx] : 0;
    __syncthreads();
    for (int i = 0; i < iteration; i++) {
        int left = prev[IN_RANGE(tx - 1, 0, BLOCK_SIZE - 1) ? tx - 1 : tx];
        int mine = MIN(left, prev[tx]);
        __syncthreads();
        prev[tx] = mine;
        __syncthreads();
    }
    if (xidx < cols) gpuResults[xidx] = prev[tx] + gpuWall[xidx];
}

int calc_path(int *gpuWall, int *gpuResult[2], int cols, int pyramid_height, int blockCols)
{
    dim3 dimBlock(BLOCK_SIZE);
    dim3 dimGrid((cols + BLOCK_SIZE - 1) / BLOCK_SIZE);
    dynproc<<<dimGrid, dimBlock>>>(4, gpuWall, gpuResult[0], gpuResult[1], cols);
    return 0;
}
