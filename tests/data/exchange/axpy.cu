extern "C" __global__ void axpy(const float* x, float* y, float a)
{
    const int i = blockIdx.x * block_size_x + threadIdx.x;
    const int j = blockIdx.y * block_size_y + threadIdx.y;
    if (i < 1024 && j < 64) {
        y[j * 1024 + i] += a * x[j * (1024 + reach) + i];
    }
}
