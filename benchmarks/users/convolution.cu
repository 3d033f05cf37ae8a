// Two-dimensional convolution of an image with a filter of 17 x 17 weights.
//
// A block computes tiles of (block_x * tile_x) x (block_y * tile_y) pixels. It stages the tile and its border in
// shared memory once; every thread computes tile_x * tile_y pixels that lie a block apart, so that the threads of a
// warp read neighbouring words of shared memory.

constexpr int F = 17;  // side of the filter

// out[y][x] = sum over i, j of image[y + i][x + j] * weights[i][j].
//
// image has N + F - 1 rows and columns, out has N. With use_padding a staged row is 16 words longer: the two or more
// rows that a warp of a narrow block reads then lie in different banks. With read_only the weights come through the
// read-only data cache, else each block copies them to shared memory.
template <int block_x, int block_y, int tile_x, int tile_y, bool use_padding, bool read_only>
__global__ void __launch_bounds__(block_x * block_y)
    convolution(const float* __restrict__ image, const float* __restrict__ weights, float* __restrict__ out, int N) {
    constexpr int width = block_x * tile_x + F - 1, height = block_y * tile_y + F - 1;
    constexpr int stride = width + (use_padding ? 16 : 0);
    __shared__ float staged[height * stride];
    __shared__ float copied[read_only ? 1 : F * F];
    const int column = threadIdx.x, row = threadIdx.y;
    const int left = blockIdx.x * (block_x * tile_x), top = blockIdx.y * (block_y * tile_y);
    const int side = N + F - 1;

    if constexpr (!read_only) {
        for (int k = row * block_x + column; k < F * F; k += block_x * block_y) copied[k] = weights[k];
    }
    for (int y = row; y < height; y += block_y) {
        for (int x = column; x < width; x += block_x) {
            const bool inside = top + y < side && left + x < side;
            staged[y * stride + x] = inside ? image[(top + y) * side + left + x] : 0.0f;
        }
    }
    __syncthreads();

    float sums[tile_y][tile_x] = {};
#pragma unroll 1
    for (int i = 0; i < F; ++i) {
#pragma unroll
        for (int j = 0; j < F; ++j) {
            float weight;
            if constexpr (read_only) {
                weight = __ldg(weights + i * F + j);
            } else {
                weight = copied[i * F + j];
            }
#pragma unroll
            for (int ty = 0; ty < tile_y; ++ty) {
#pragma unroll
                for (int tx = 0; tx < tile_x; ++tx) {
                    sums[ty][tx] +=
                        staged[(row + ty * block_y + i) * stride + column + tx * block_x + j] * weight;
                }
            }
        }
    }

#pragma unroll
    for (int ty = 0; ty < tile_y; ++ty) {
        const int y = top + row + ty * block_y;
#pragma unroll
        for (int tx = 0; tx < tile_x; ++tx) {
            const int x = left + column + tx * block_x;
            if (y < N && x < N) out[y * N + x] = sums[ty][tx];
        }
    }
}

// What answers are compared with; a template, so that it is compiled for that alone.
template <class Real>
__global__ void naive(const float* __restrict__ image, const float* __restrict__ weights, float* __restrict__ out,
                      int N) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y, side = N + F - 1;
    if (x >= N) return;
    Real sum = 0;
    for (int i = 0; i < F; ++i) {
        for (int j = 0; j < F; ++j) sum += Real(image[(y + i) * side + x + j]) * weights[i * F + j];
    }
    out[y * N + x] = float(sum);
}
