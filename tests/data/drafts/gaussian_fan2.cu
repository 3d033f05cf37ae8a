#include <stdio.h>
#ifdef RD_WG_SIZE_1
#define BLOCK_SIZE_XY RD_WG_SIZE_1
#else
#define BLOCK_SIZE_XY 4
#endif
int Size;
float *a, *b;

__global__ void Fan1(float *m_cuda, float *a_cuda, int Size, int t)
{
    if (threadIdx.x + blockIdx.x * blockDim.x >= Size - 1 - t) return;
    int i = threadIdx.x + blockIdx.x * blockDim.x + t + 1;
    m_cuda[Size * i + t] = a_cuda[Size * i + t] / a_cuda[Size * t + t];
}

__global__ void Fan2(float *m_cuda, float *a_cuda, int Size, int t)
{
    if (threadIdx.x + blockIdx.x * blockDim.x >= Size - 1 - t) return;
    if (threadIdx.y + blockIdx.y * blockDim.y >= Size - t) return;
    int xidx = blockIdx.x * blockDim.x + threadIdx.x;
    int yidx = blockIdx.y * blockDim.y + threadIdx.y;
    a_cuda[Size * (xidx + 1 + t) + (yidx + t)] -= m_cuda[Size * (xidx + 1 + t) + t] * a_cuda[Size * t + (yidx + t)];
}

void ForwardSub()
{
    int t;
    float *m_cuda, *a_cuda;
    cudaMalloc((void **)&m_cuda, Size * Size * sizeof(float));
    cudaMalloc((void **)&a_cuda, Size * Size * sizeof(float));
    int blockSize2d, gridSize2d;
    blockSize2d = BLOCK_SIZE_XY;
    gridSize2d = (Size / blockSize2d) + (!(Size % blockSize2d ? 0 : 1));
    dim3 dimBlockXY(blockSize2d, blockSize2d);
    dim3 dimGridXY(gridSize2d, gridSize2d);
    for (t = 0; t < (Size - 1); t++) {
        Fan2<<<dimGridXY, dimBlockXY>>>(m_cuda, a_cuda, Size, t);
    }
}
