#include <stdio.h>

template <int BLOCK_SIZE> __global__ void
MatrixMul(float *C, float *A, float *B, int wA, int wB) {
  int bx = blockIdx.x, by = blockIdx.y;
  int tx = threadIdx.x, ty = threadIdx.y;
  int aBegin = wA * BLOCK_SIZE * by;
  int bBegin = BLOCK_SIZE * bx;
  float Csub = 0;
  for (int k = 0; k < wA; k += BLOCK_SIZE) {
    __shared__ float As[BLOCK_SIZE][BLOCK_SIZE];
    __shared__ float Bs[BLOCK_SIZE][BLOCK_SIZE];
    As[ty][tx] = A[aBegin + k + wA * ty + tx];
    Bs[ty][tx] = B[bBegin + k * wB + wB * ty + tx];
    __syncthreads();
    for (int j = 0; j < BLOCK_SIZE; ++j) Csub += As[ty][j] * Bs[j][tx];
    __syncthreads();
  }
  C[wB * BLOCK_SIZE * by + BLOCK_SIZE * bx + wB * ty + tx] = Csub;
}

int run(int block_size, const dim3 &dimsA, const dim3 &dimsB) {
  float *d_A, *d_B, *d_C;
  cudaMalloc((void **)&d_A, dimsA.x * dimsA.y * sizeof(float));
  cudaMalloc((void **)&d_B, dimsB.x * dimsB.y * sizeof(float));
  cudaMalloc((void **)&d_C, dimsB.x * dimsA.y * sizeof(float));
  dim3 threads(block_size, block_size);
  dim3 grid(dimsB.x / threads.x, dimsA.y / threads.y);
  if (block_size == 16)
    MatrixMul<16><<<grid, threads>>>(d_C, d_A, d_B, dimsA.x, dimsB.x);
  else
    MatrixMul<32><<<grid, threads>>>(d_C, d_A, d_B, dimsA.x, dimsB.x);
  return 0;
}
