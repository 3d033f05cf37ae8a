// Seven-point stencil of a cube: y = centre * x + side * (the sum of the six neighbours); outside it is zero.
//
// A thread goes up `planes` planes of one column and keeps what is below, here and above in registers. With `staged`
// a block holds its part of the plane in shared memory, with a rim of one, else neighbours come through the L1.

template <int block_x, int block_y, int planes, bool staged>
__global__ void stencil(const float* __restrict__ x, float* __restrict__ y, int n, float centre, float side) {
    __shared__ float tile[staged ? block_y + 2 : 1][staged ? block_x + 2 : 1];
    const int column = blockIdx.x * block_x + threadIdx.x, row = blockIdx.y * block_y + threadIdx.y;
    const int first = blockIdx.z * planes;
    const bool inside = column < n && row < n;
    const size_t plane = size_t(n) * n;
    auto at = [&](int k, int j, int i) {
        return k >= 0 && k < n && j >= 0 && j < n && i >= 0 && i < n ? x[k * plane + size_t(j) * n + i] : 0.0f;
    };

    float below = at(first - 1, row, column), here = at(first, row, column);
#pragma unroll
    for (int p = 0; p < planes; ++p) {
        const int k = first + p;
        const float above = at(k + 1, row, column);
        float west, east, north, south;
        if (staged) {
            const int i = threadIdx.x + 1, j = threadIdx.y + 1;
            __syncthreads();
            tile[j][i] = here;
            if (threadIdx.x == 0) tile[j][0] = at(k, row, column - 1);
            if (threadIdx.x == block_x - 1) tile[j][block_x + 1] = at(k, row, column + 1);
            if (threadIdx.y == 0) tile[0][i] = at(k, row - 1, column);
            if (threadIdx.y == block_y - 1) tile[block_y + 1][i] = at(k, row + 1, column);
            __syncthreads();
            west = tile[j][i - 1], east = tile[j][i + 1], north = tile[j - 1][i], south = tile[j + 1][i];
        } else {
            west = at(k, row, column - 1), east = at(k, row, column + 1);
            north = at(k, row - 1, column), south = at(k, row + 1, column);
        }
        if (inside && k < n) {
            y[k * plane + size_t(row) * n + column] =
                centre * here + side * (below + above + west + east + north + south);
        }
        below = here;
        here = above;
    }
}

// What answers are compared with; a template, so that it is compiled for that alone.
template <class Real>
__global__ void naive(const float* __restrict__ x, float* __restrict__ y, int n, float centre, float side) {
    const int i = blockIdx.x * blockDim.x + threadIdx.x, j = blockIdx.y, k = blockIdx.z;
    if (i >= n) return;
    const size_t here = (size_t(k) * n + j) * n + i, plane = size_t(n) * n;
    Real sum = 0;
    if (i > 0) sum += x[here - 1];
    if (i < n - 1) sum += x[here + 1];
    if (j > 0) sum += x[here - n];
    if (j < n - 1) sum += x[here + n];
    if (k > 0) sum += x[here - plane];
    if (k < n - 1) sum += x[here + plane];
    y[here] = float(Real(centre) * x[here] + Real(side) * sum);
}
