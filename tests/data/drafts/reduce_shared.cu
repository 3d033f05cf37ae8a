#include <cuda_runtime.h>

// sum of a block in dynamic shared memory
__global__ void reduceSum(float *g_idata, float *g_odata, unsigned int n)
{
    extern __shared__ float sdata[];
    unsigned int tid = threadIdx.x;
    unsigned int i = blockIdx.x * blockDim.x + threadIdx.x;
    sdata[tid] = (i < n) ? g_idata[i] : 0;
    __syncthreads();
    for (unsigned int s = blockDim.x / 2; s > 0; s >>= 1) {
        if (tid < s) sdata[tid] += sdata[tid + s];
        __syncthreads();
    }
    if (tid == 0) g_odata[blockIdx.x] = sdata[0];
}

extern "C" void reduce(int size, int threads, float *d_idata, float *d_odata)
{
    dim3 dimBlock(threads, 1, 1);
    dim3 dimGrid((size + threads - 1) / threads, 1, 1);
    int smemSize = threads * sizeof(float);
    reduceSum<<<dimGrid, dimBlock, smemSize>>>(d_idata, d_odata, size);
}
