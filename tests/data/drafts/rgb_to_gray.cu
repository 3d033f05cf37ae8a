#include <cstdio>

inline unsigned int cdiv(unsigned int a, unsigned int b) { return (a + b - 1) / b; }

__global__ void rgb_to_grayscale_kernel(const unsigned char* input, unsigned char* output, int width, int height) {
    const int col = blockIdx.x * blockDim.x + threadIdx.x;
    const int row = blockIdx.y * blockDim.y + threadIdx.y;
    if (col < width && row < height) {
        const int outputOffset = row * width + col;
        const int inputOffset = (row * width + col) * 3;
        output[outputOffset] = (unsigned char)(0.21f * input[inputOffset] + 0.71f * input[inputOffset + 1] + 0.07f * input[inputOffset + 2]);
    }
}

void rgb_to_gray(const unsigned char* image, unsigned char* result, int width, int height) {
    dim3 threads_per_block(16, 16);
    dim3 number_of_blocks(cdiv(width, threads_per_block.x), cdiv(height, threads_per_block.y));
    rgb_to_grayscale_kernel<<<number_of_blocks, threads_per_block>>>(image, result, width, height);
}
