
#include "parts.cuh"
// __constant__ float commented[3];
__constant__ float weights[17], other;
__device__ __align__(16) int table[4] = {1, 2, 3, 4};
namespace ring { static __constant__ double taps[2][3]; }
__device__ float twice(float x) { return 2 * x; }
__global__ void prepare(const float* x, float* tmp) {}
__global__ void filter(const float* x, float* y) {}
