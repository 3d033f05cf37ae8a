#include <iostream>
#include <vector>

// grid-stride loop, as in blog posts
__global__ void saxpy(int n, float a, const float* __restrict__ x, float* __restrict__ y) {
  for (int i = blockIdx.x * blockDim.x + threadIdx.x; i < n; i += blockDim.x * gridDim.x)
    y[i] = a * x[i] + y[i];
}

int main() {
  const int N = 1 << 20;
  float *x, *y;
  cudaMallocManaged(&x, N * sizeof(float));
  cudaMallocManaged(&y, N * sizeof(float));
  saxpy<<<(N + 255) / 256, 256>>>(N, 2.0f, x, y);
  cudaDeviceSynchronize();
  std::cout << y[0] << std::endl;
}
