// C = A B of n x n matrices. A block makes a tile of C and takes `depth` columns of A and rows of B at a time through
// shared memory; every thread has `rows` rows and 4 * packs columns of the tile in registers. n is a multiple of all.
template <int block_size_x, int block_size_y, int rows, int packs, int depth>
__global__ void matmul(const float* __restrict__ A, const float* __restrict__ B, float* __restrict__ C, int n)
{
    constexpr int high = block_size_y * rows, wide = block_size_x * packs, threads = block_size_x * block_size_y;
    alignas(16) __shared__ float a[depth][high + 4];
    __shared__ float4 b[depth][wide];
    const int thread = threadIdx.y * block_size_x + threadIdx.x, top = blockIdx.y * high;
    const float4* from = reinterpret_cast<const float4*>(B) + blockIdx.x * wide;
    float4 sum[rows][packs] = {};
    for (int start = 0; start < n; start += depth) {
#pragma unroll
        for (int i = thread; i < high * depth; i += threads)
            a[i % depth][i / depth] = A[(size_t)(top + i / depth) * n + start + i % depth];
#pragma unroll
        for (int i = thread; i < depth * wide; i += threads)
            b[i / wide][i % wide] = from[(size_t)(start + i / wide) * (n / 4) + i % wide];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < depth; ++k)
#pragma unroll
            for (int r = 0; r < rows; ++r)
#pragma unroll
                for (int p = 0; p < packs; ++p) {
                    const float x = a[k][threadIdx.y * rows + r];
                    const float4 y = b[k][p * block_size_x + threadIdx.x];
                    sum[r][p].x += x * y.x, sum[r][p].y += x * y.y, sum[r][p].z += x * y.z, sum[r][p].w += x * y.w;
                }
        __syncthreads();
    }
    float4* to = reinterpret_cast<float4*>(C) + blockIdx.x * wide;
    for (int r = 0; r < rows; ++r)
        for (int p = 0; p < packs; ++p)
            to[(size_t)(top + threadIdx.y * rows + r) * (n / 4) + p * block_size_x + threadIdx.x] = sum[r][p];
}
