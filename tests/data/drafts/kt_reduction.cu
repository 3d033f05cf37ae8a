#ifndef use_shuffle
#define use_shuffle 1
#endif

extern "C" __global__ void sum_floats(float *sum_global, const float *array, int n) {
    int ti = threadIdx.x;
    int x = blockIdx.x * block_size_x + threadIdx.x;
    int step_size = gridDim.x * block_size_x;
    float sum = 0.0f;
    for (int i = x; i < n; i += step_size) sum += array[i];
    __shared__ float sh_mem[block_size_x];
    sh_mem[ti] = sum;
    __syncthreads();
    #pragma unroll
    for (unsigned int s = block_size_x / 2; s > 31; s >>= 1) {
        if (ti < s) sh_mem[ti] += sh_mem[ti + s];
        __syncthreads();
    }
    if (ti < 32) {
        #if use_shuffle == 1
        sum = sh_mem[ti];
        for (int s = 16; s > 0; s >>= 1) sum += __shfl_down_sync(0xffffffff, sum, s);
        if (ti == 0) atomicAdd(sum_global, sum);
        #elif use_shuffle == 0
        if (ti == 0) for (int s = 0; s < 32; s++) atomicAdd(sum_global, sh_mem[s]);
        #endif
    }
}
