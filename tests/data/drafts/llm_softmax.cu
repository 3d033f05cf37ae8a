#include <cuda_runtime.h>
#include <math.h>

__device__ float warpReduceSum(float val) {
    for (int offset = 16; offset > 0; offset /= 2) val += __shfl_xor_sync(0xffffffff, val, offset);
    return val;
}

__global__ void softmax_kernel(float* out, const float* inp, int N, int C) {
    extern __shared__ float shared[];
    int idx = blockIdx.x;
    int tid = threadIdx.x;
    int warpsPerBlock = blockDim.x / 32;
    const float* x = inp + idx * C;
    float sum = 0.0f;
    for (int i = tid; i < C; i += blockDim.x) sum += expf(x[i]);
    sum = warpReduceSum(sum);
    if (tid % 32 == 0) shared[tid / 32] = sum;
    __syncthreads();
    float total = 0.0f;
    for (int i = 0; i < warpsPerBlock; i++) total += shared[i];
    for (int i = tid; i < C; i += blockDim.x) out[idx * C + i] = expf(x[i]) / total;
}

void softmax_forward(float* out, const float* inp, int N, int C, const int block_size) {
    int grid_size = N;
    size_t shared_mem_size = 2 * block_size / 32 * sizeof(float);
    softmax_kernel<<<grid_size, block_size, shared_mem_size>>>(out, inp, N, C);
}
