// An image of n x n under a filter of 17 x 17, which lies in constant memory; the image has a rim of 8 on each side.
// A block reads its part into shared memory. A thread makes tile_y elements below each other, tile_x times: what it
// reads of a column serves all of these.
constexpr int width = 17;
__constant__ float weights[width * width];

template <int block_size_x, int block_size_y, int tile_x, int tile_y>
__global__ void convolution(const float* __restrict__ image, float* __restrict__ out, int n)
{
    constexpr int wide = block_size_x * tile_x + width - 1, high = block_size_y * tile_y + width - 1;
    __shared__ float part[high][wide];
    const int left = blockIdx.x * block_size_x * tile_x, top = blockIdx.y * block_size_y * tile_y, pitch = n + width - 1;
    for (int y = threadIdx.y; y < high; y += block_size_y)
        for (int x = threadIdx.x; x < wide; x += block_size_x)
            part[y][x] = top + y < pitch && left + x < pitch ? image[(size_t)(top + y) * pitch + left + x] : 0.0f;
    __syncthreads();
    float sum[tile_x][tile_y] = {};
    for (int j = 0; j < width; ++j)
#pragma unroll
        for (int i = 0; i < tile_y + width - 1; ++i)
#pragma unroll
            for (int x = 0; x < tile_x; ++x) {
                const float value = part[threadIdx.y * tile_y + i][threadIdx.x + x * block_size_x + j];
#pragma unroll
                for (int y = 0; y < tile_y; ++y)
                    if (i - y >= 0 && i - y < width) sum[x][y] += weights[(i - y) * width + j] * value;
            }
    for (int x = left + threadIdx.x, k = 0; k < tile_x; ++k, x += block_size_x)
        for (int y = top + threadIdx.y * tile_y, l = 0; l < tile_y; ++l, ++y)
            if (x < n && y < n) out[(size_t)y * n + x] = sum[k][l];
}

__global__ void naive(const float* __restrict__ image, float* __restrict__ out, int n)
{
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    float sum = 0.0f;
    for (int i = 0; x < n && i < width * width; ++i)
        sum += weights[i] * image[(size_t)(y + i / width) * (n + width - 1) + x + i % width];
    if (x < n) out[(size_t)y * n + x] = sum;
}
