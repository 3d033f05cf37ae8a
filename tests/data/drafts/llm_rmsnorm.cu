#define CEIL_DIV(M, N) (((M) + (N) - 1) / (N))

// a warp for each row
__global__ void rmsnorm_kernel(float* __restrict__ out, const float* __restrict__ inp, const float* __restrict__ weight, int N, int C) {
    int lane = threadIdx.x % 32;
    int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32;
    if (row >= N) return;
    const float* x = inp + row * C;
    float sum = 0.0f;
    for (int i = lane; i < C; i += 32) sum += x[i] * x[i];
    for (int offset = 16; offset > 0; offset >>= 1) sum += __shfl_xor_sync(0xffffffff, sum, offset);
    float s = rsqrtf(sum / C + 1e-5f);
    for (int i = lane; i < C; i += 32) out[row * C + i] = x[i] * s * weight[i];
}

void rmsnorm(float* out, float* inp, float* weight, int B, int T, int C, int block_size) {
    const int N = B * T;
    const int grid_size = CEIL_DIV(N * 32, block_size);
    rmsnorm_kernel<<<grid_size, block_size>>>(out, inp, weight, N, C);
}
