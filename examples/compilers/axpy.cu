// y = a * x + y, in a file of an application: headers of the host, and the code of the host that launches it.
#include <cstdio>
#include <vector>

#ifndef WIDTH
#define WIDTH 1
#endif

__global__ void axpy(float* y, const float* x, float a, int n)
{
    const int first = blockIdx.x * blockDim.x * WIDTH + threadIdx.x;
#pragma unroll
    for (int k = 0; k < WIDTH; ++k) {
        const int i = first + k * blockDim.x;
        if (i < n) y[i] += a * x[i];
    }
}

#ifdef __CUDACC__
int main()
{
    const std::vector<float> ones(1 << 20, 1.0f);
    const size_t bytes = ones.size() * sizeof(float);
    float *x, *y;
    cudaMalloc(&x, bytes);
    cudaMalloc(&y, bytes);
    cudaMemcpy(x, ones.data(), bytes, cudaMemcpyHostToDevice);
    cudaMemcpy(y, ones.data(), bytes, cudaMemcpyHostToDevice);
    axpy<<<(ones.size() + 256 * WIDTH - 1) / (256 * WIDTH), 256>>>(y, x, 2.0f, static_cast<int>(ones.size()));
    float first;
    cudaMemcpy(&first, y, sizeof first, cudaMemcpyDeviceToHost);
    std::printf("%g\n", first);
}
#endif
