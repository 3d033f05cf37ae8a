#include <assert.h>
#define KERNEL_RADIUS 8
#define KERNEL_LENGTH (2 * KERNEL_RADIUS + 1)
#define ROWS_BLOCKDIM_X 16
#define ROWS_BLOCKDIM_Y 4

__constant__ float c_Kernel[KERNEL_LENGTH];

__global__ void convolutionRows(float *d_Dst, float *d_Src, int imageW, int imageH)
{
    const int x = blockIdx.x * ROWS_BLOCKDIM_X + threadIdx.x;
    const int y = blockIdx.y * ROWS_BLOCKDIM_Y + threadIdx.y;
    float sum = 0;
    for (int j = -KERNEL_RADIUS; j <= KERNEL_RADIUS; j++) {
        int xx = min(max(x + j, 0), imageW - 1);
        sum += c_Kernel[KERNEL_RADIUS - j] * d_Src[y * imageW + xx];
    }
    d_Dst[y * imageW + x] = sum;
}

extern "C" void convolutionRowsGPU(float *d_Dst, float *d_Src, int imageW, int imageH)
{
    assert(imageW % ROWS_BLOCKDIM_X == 0);
    assert(imageH % ROWS_BLOCKDIM_Y == 0);
    dim3 blocks(imageW / ROWS_BLOCKDIM_X, imageH / ROWS_BLOCKDIM_Y);
    dim3 threads(ROWS_BLOCKDIM_X, ROWS_BLOCKDIM_Y);
    convolutionRows<<<blocks, threads>>>(d_Dst, d_Src, imageW, imageH);
}
