// Product of two square matrices, float32, by tiles in shared memory.
//
// A block computes a tile of (block_y * tile_y) x (block_x * tile_x) elements of C. It walks along the inner dimension
// in steps of depth: each step stages a tile of A and one of B in shared memory, then every thread adds depth outer
// products of tile_y elements of A and tile_x of B, which it holds in registers. The elements of a thread lie a block
// apart, so that the threads of a warp read and write neighbouring words.

// C = A B, all row-major of N rows and columns; any N.
template <int block_x, int block_y, int tile_x, int tile_y, int depth>
__global__ void __launch_bounds__(block_x * block_y)
    matmul(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int N) {
    constexpr int rows = block_y * tile_y, columns = block_x * tile_x, threads = block_x * block_y;
    __shared__ float a[depth][rows + 1];  // transposed; the spare word keeps its columns out of one bank
    __shared__ float b[depth][columns];
    const int thread = threadIdx.y * block_x + threadIdx.x;
    const int top = blockIdx.y * rows, left = blockIdx.x * columns;

    float sums[tile_y][tile_x] = {};
#pragma unroll 1
    for (int from = 0; from < N; from += depth) {
#pragma unroll
        for (int e = thread; e < rows * depth; e += threads) {
            const int y = e / depth, k = e % depth;
            const bool inside = top + y < N && from + k < N;
            a[k][y] = inside ? A[(top + y) * N + from + k] : 0.0f;
        }
#pragma unroll
        for (int e = thread; e < depth * columns; e += threads) {
            const int k = e / columns, x = e % columns;
            const bool inside = from + k < N && left + x < N;
            b[k][x] = inside ? B[(from + k) * N + left + x] : 0.0f;
        }
        __syncthreads();
#pragma unroll
        for (int k = 0; k < depth; ++k) {
            float column[tile_y], row[tile_x];
#pragma unroll
            for (int ty = 0; ty < tile_y; ++ty) column[ty] = a[k][threadIdx.y + ty * block_y];
#pragma unroll
            for (int tx = 0; tx < tile_x; ++tx) row[tx] = b[k][threadIdx.x + tx * block_x];
#pragma unroll
            for (int ty = 0; ty < tile_y; ++ty) {
#pragma unroll
                for (int tx = 0; tx < tile_x; ++tx) sums[ty][tx] += column[ty] * row[tx];
            }
        }
        __syncthreads();
    }

#pragma unroll
    for (int ty = 0; ty < tile_y; ++ty) {
        const int y = top + threadIdx.y + ty * block_y;
#pragma unroll
        for (int tx = 0; tx < tile_x; ++tx) {
            const int x = left + threadIdx.x + tx * block_x;
            if (y < N && x < N) C[y * N + x] = sums[ty][tx];
        }
    }
}

// What answers are compared with; a template, so that it is compiled for that alone.
template <class Real>
__global__ void naive(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int N) {
    const int x = blockIdx.x * blockDim.x + threadIdx.x, y = blockIdx.y;
    if (x >= N) return;
    Real sum = 0;
    for (int k = 0; k < N; ++k) sum += Real(A[y * N + k]) * B[k * N + x];
    C[y * N + x] = float(sum);
}
