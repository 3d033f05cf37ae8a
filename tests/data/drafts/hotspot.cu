#include <stdio.h>
#include <sys/time.h>
#ifdef RD_WG_SIZE
#define BLOCK_SIZE RD_WG_SIZE
#else
#define BLOCK_SIZE 16
#endif
#define STR_SIZE 256

__global__ void step_temp(float *power, float *temp_src, float *temp_dst, int cols, int rows, float cap)
{
    __shared__ float t[BLOCK_SIZE][BLOCK_SIZE];
    int tx = threadIdx.x, ty = threadIdx.y;
    int x = BLOCK_SIZE * blockIdx.x + tx;
    int y = BLOCK_SIZE * blockIdx.y + ty;
    bool in = x < cols && y < rows;
    t[ty][tx] = in ? temp_src[y * cols + x] : 0.f;
    __syncthreads();
    int w = max(tx - 1, 0), e = min(tx + 1, BLOCK_SIZE - 1);
    if (in) temp_dst[y * cols + x] = t[ty][tx] + cap * (power[y * cols + x] + t[ty][w] - t[ty][e]);
}

void usage(char **argv) { fprintf(stderr, "Usage: %s <rows>\n", argv[0]); }

int compute(float *MatrixPower, float *MatrixTemp[2], int col, int row)
{
    dim3 dimBlock(BLOCK_SIZE, BLOCK_SIZE);
    dim3 dimGrid((int)ceil((float)col / BLOCK_SIZE), (int)ceil((float)row / BLOCK_SIZE));
    step_temp<<<dimGrid, dimBlock>>>(MatrixPower, MatrixTemp[0], MatrixTemp[1], col, row, 0.5f);
    return 1;
}
