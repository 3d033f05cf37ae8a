#if MODE == 1 or MODE == 2
#define APPLY(x) ((x) * (x))
#else
#define APPLY(x) (x)
#endif
#ifndef UNROLL
#define UNROLL 4
#endif

__global__ void apply(const float *in, float *out, int n)
{
    int first = (blockIdx.x * blockDim.x + threadIdx.x) * UNROLL;
#pragma unroll
    for (int k = 0; k < UNROLL; k++)
        if (first + k < n) out[first + k] = APPLY(in[first + k]);
}
