// A star-shaped stencil of radius 2 on n x n points; points outside count as zero. Block z of the grid has the z-th
// problem.

constexpr int radius = 2;
constexpr float centre = 0.5f, near = 0.1f, far = 0.025f;

__device__ __forceinline__ float point(const float* __restrict__ x, int column, int row, int n) {
    return unsigned(column) < unsigned(n) && unsigned(row) < unsigned(n) ? x[(size_t)row * n + column] : 0.0f;
}

// From memory, and what is read twice from the caches.
struct Direct {
    const float* __restrict__ x;
    int column, row, n;  // of the thread's point
    __device__ float operator()(int across, int down) const { return point(x, column + across, row + down, n); }
};

// From a tile in shared memory.
template <int width>
struct Tile {
    const float* shared;
    int column, row;
    __device__ float operator()(int across, int down) const {
        return shared[(row + down + radius) * width + column + across + radius];
    }
};

template <class Points>
__device__ __forceinline__ float star(const Points& at, const float (&column)[2 * radius + 1]) {
    return centre * column[2] + near * (at(-1, 0) + at(1, 0) + column[1] + column[3]) +
           far * (at(-2, 0) + at(2, 0) + column[0] + column[4]);
}

// `rows` points of a column, one below the other.
template <int rows, bool rolling, class Points>
__device__ __forceinline__ void points(Points at, float* __restrict__ y, int column, int row, int n) {
    float held[2 * radius + 1];
#pragma unroll
    for (int i = 0; i < 2 * radius; ++i) held[i + 1] = at(0, i - radius);
#pragma unroll
    for (int i = 0; i < rows; ++i) {
        if (rolling || i == 0) {
#pragma unroll
            for (int k = 0; k < 2 * radius; ++k) held[k] = held[k + 1];
            held[2 * radius] = at(0, radius);
        } else {
#pragma unroll
            for (int k = 0; k <= 2 * radius; ++k) held[k] = at(0, k - radius);
        }
        if (column < n && row + i < n) y[(size_t)(row + i) * n + column] = star(at, held);
        ++at.row;
    }
}

// Blocks of block_x x block_y threads. A thread takes `rows` points of a column; where it rolls, it keeps what it
// knows of the column in registers.
template <int block_x, int block_y, int rows, bool tiled, bool rolling>
__global__ void __launch_bounds__(block_x * block_y) stencil(const float* __restrict__ x, float* __restrict__ y, int n) {
    x += (size_t)blockIdx.z * n * n;
    y += (size_t)blockIdx.z * n * n;
    const int left = blockIdx.x * block_x, top = blockIdx.y * block_y * rows;
    const int column = threadIdx.x, row = threadIdx.y * rows;
    if constexpr (tiled) {
        constexpr int width = block_x + 2 * radius, height = block_y * rows + 2 * radius;
        __shared__ float shared[width * height];
        for (int j = threadIdx.y; j < height; j += block_y) {
            for (int i = threadIdx.x; i < width; i += block_x) {
                shared[j * width + i] = point(x, left + i - radius, top + j - radius, n);
            }
        }
        __syncthreads();
        points<rows, rolling>(Tile<width>{shared, column, row}, y, left + column, top + row, n);
    } else {
        points<rows, rolling>(Direct{x, left + column, top + row, n}, y, left + column, top + row, n);
    }
}
