// LU factorisation without pivots of a row-major matrix in place, in blocks of B rows and columns: for every step the
// diagonal block is factored, the strips right of it and below it are solved against it, and what lies right of and
// below these is updated. L has ones on its diagonal, which are not stored. N need not be a multiple of B.

// Factors the first `count` rows and columns of a block in shared memory.
template <int B, int THREADS>
__device__ void factor(float (&block)[B][B + 1], int count)
{
    for (int k = 0; k < count - 1; ++k) {
        __syncthreads();
        for (int i = k + 1 + threadIdx.x; i < count; i += THREADS) block[i][k] /= block[k][k];
        __syncthreads();
        const int rest = count - 1 - k;
        for (int e = threadIdx.x; e < rest * rest; e += THREADS) {
            const int i = k + 1 + e / rest, j = k + 1 + e % rest;
            block[i][j] -= block[i][k] * block[k][j];
        }
    }
    __syncthreads();
}

template <int B>
__global__ void __launch_bounds__(256) diagonal(float* __restrict__ A, int N, int first)
{
    __shared__ float block[B][B + 1];
    const int count = min(B, N - first);
    float* corner = A + (size_t)first * N + first;
    for (int e = threadIdx.x; e < count * count; e += 256)
        block[e / count][e % count] = corner[(size_t)(e / count) * N + e % count];
    factor<B, 256>(block, count);
    for (int e = threadIdx.x; e < count * count; e += 256)
        corner[(size_t)(e / count) * N + e % count] = block[e / count][e % count];
}

// The first half of the blocks solves L X = A in the strip of rows, C columns each, the second half X U = A in the strip
// of columns, C rows each. A thread has one column or one row.
template <int B, int C>
__global__ void __launch_bounds__(C) perimeter(float* __restrict__ A, int N, int first)
{
    __shared__ float block[B][B];
    __shared__ float strip[B][C + 1];
    const int t = threadIdx.x, half = gridDim.x / 2;
    const bool rows = blockIdx.x < half;
    const int start = first + B + (rows ? blockIdx.x : blockIdx.x - half) * C, count = min(C, N - start);
    float* corner = A + (size_t)first * N + first;
    for (int e = t; e < B * B; e += C) block[e / B][e % B] = corner[(size_t)(e / B) * N + e % B];
    float* from = rows ? A + (size_t)first * N + start : A + (size_t)start * N + first;
    if (rows) {
        for (int k = 0; k < B; ++k)
            if (t < count) strip[k][t] = from[(size_t)k * N + t];
    } else {
        for (int e = t; e < count * B; e += C) strip[e % B][e / B] = from[(size_t)(e / B) * N + e % B];
    }
    __syncthreads();
    if (t < count) {
        for (int i = 0; i < B; ++i) {
            float value = strip[i][t];
            for (int k = 0; k < i; ++k) value -= (rows ? block[i][k] : block[k][i]) * strip[k][t];
            strip[i][t] = rows ? value : value / block[i][i];
        }
    }
    __syncthreads();
    if (rows) {
        for (int k = 0; k < B; ++k)
            if (t < count) from[(size_t)k * N + t] = strip[k][t];
    } else {
        for (int e = t; e < count * B; e += C) from[(size_t)(e / B) * N + e % B] = strip[e % B][e / B];
    }
}

// Subtracts the product of the strips, B rows and B columns a block; a thread has R rows and Q columns of them. With
// FUSE the first block also factors its result, which is the diagonal block of the next step.
template <int B, int R, int Q, bool FUSE>
__global__ void __launch_bounds__((B / R) * (B / Q)) internal(float* __restrict__ A, int N, int first)
{
    constexpr int across = B / Q, down = B / R, threads = across * down;
    __shared__ float left[B][B + 1];
    __shared__ float above[B][B];
    const int x = threadIdx.x % across, y = threadIdx.x / across;
    const int top = first + (blockIdx.y + 1) * B, side = first + (blockIdx.x + 1) * B;
    for (int e = threadIdx.x; e < B * B; e += threads) {
        const int i = e / B, k = e % B;
        left[i][k] = top + i < N ? A[(size_t)(top + i) * N + first + k] : 0.0f;
        above[i][k] = side + k < N ? A[(size_t)(first + i) * N + side + k] : 0.0f;
    }
    __syncthreads();
    float sum[R][Q] = {};
#pragma unroll 4
    for (int k = 0; k < B; ++k) {
        float row[R], column[Q];
#pragma unroll
        for (int i = 0; i < R; ++i) row[i] = left[y + i * down][k];
#pragma unroll
        for (int j = 0; j < Q; ++j) column[j] = above[k][x + j * across];
#pragma unroll
        for (int i = 0; i < R; ++i)
#pragma unroll
            for (int j = 0; j < Q; ++j) sum[i][j] += row[i] * column[j];
    }
    const bool next = FUSE && blockIdx.x == 0 && blockIdx.y == 0;
    if (next) __syncthreads();  // all have read what the results replace
#pragma unroll
    for (int i = 0; i < R; ++i)
#pragma unroll
        for (int j = 0; j < Q; ++j) {
            const int row = y + i * down, column = x + j * across;
            if (top + row >= N || side + column >= N) continue;
            float* to = &A[(size_t)(top + row) * N + side + column];
            if (next)
                left[row][column] = *to - sum[i][j];
            else
                *to -= sum[i][j];
        }
    if (!next) return;
    const int count = min(B, N - top);
    factor<B, threads>(left, count);
    for (int e = threadIdx.x; e < count * count; e += threads)
        A[(size_t)(top + e / count) * N + top + e % count] = left[e / count][e % count];
}
