// C = A B of n x n matrices in half precision on tensor cores, added up in single precision. A block makes a tile of C
// through shared memory; every warp has high x wide fragments of 16 x 16 of it. n is a multiple of the tile.
#include <cuda_fp16.h>
#include <mma.h>
using namespace nvcuda::wmma;

template <int warps_x, int warps_y, int wide, int high, int depth>
__global__ void tensor_cores(const half* __restrict__ A, const half* __restrict__ B, float* __restrict__ C, int n)
{
    constexpr int rows = 16 * high * warps_y, columns = 16 * wide * warps_x, threads = 32 * warps_x * warps_y;
    constexpr int pitch = depth + 8, pitch_b = columns + 8;  // no multiple of the banks
    alignas(32) __shared__ half a[rows * pitch], b[depth * pitch_b];
    const int warp = threadIdx.x / 32, down = warp / warps_x * 16 * high, across = warp % warps_x * 16 * wide;
    const half *from_a = A + (size_t)blockIdx.y * rows * n, *from_b = B + blockIdx.x * columns;
    fragment<accumulator, 16, 16, 16, float> sum[high][wide] = {};
    for (int start = 0; start < n; start += depth, from_a += depth, from_b += (size_t)depth * n) {
#pragma unroll
        for (int i = 8 * threadIdx.x; i < rows * depth; i += 8 * threads)
            *(int4*)&a[i / depth * pitch + i % depth] = *(const int4*)&from_a[(size_t)(i / depth) * n + i % depth];
#pragma unroll
        for (int i = 8 * threadIdx.x; i < depth * columns; i += 8 * threads)
            *(int4*)&b[i / columns * pitch_b + i % columns] = *(const int4*)&from_b[(size_t)(i / columns) * n + i % columns];
        __syncthreads();
#pragma unroll
        for (int k = 0; k < depth; k += 16) {
            fragment<matrix_a, 16, 16, 16, half, row_major> x[high];
            fragment<matrix_b, 16, 16, 16, half, row_major> y[wide];
            for (int r = 0; r < high; ++r) load_matrix_sync(x[r], &a[(down + 16 * r) * pitch + k], pitch);
            for (int c = 0; c < wide; ++c) load_matrix_sync(y[c], &b[k * pitch_b + across + 16 * c], pitch_b);
            for (int r = 0; r < high; ++r)
                for (int c = 0; c < wide; ++c) mma_sync(sum[r][c], x[r], y[c], sum[r][c]);
        }
        __syncthreads();
    }
    float* to = C + (size_t)(blockIdx.y * rows + down) * n + blockIdx.x * columns + across;
    for (int r = 0; r < high; ++r)
        for (int c = 0; c < wide; ++c) store_matrix_sync(&to[16 * (r * n + c)], sum[r][c], n, mem_row_major);
}
