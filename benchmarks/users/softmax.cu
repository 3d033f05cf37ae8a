// Softmax of the rows of a matrix: y = exp(x - largest of the row) / their sum.
//
// A block takes block_y rows; block_x threads, whole warps, share a row and read `vector` numbers at a time. With
// `online` largest and sum are found in one pass, in which the sum is scaled whenever a larger number comes.

template <int vector>
struct alignas(4 * vector) Pack {
    float value[vector];
};

struct Larger {
    __device__ float operator()(float a, float b) const { return fmaxf(a, b); }
};
struct Sum {
    __device__ float operator()(float a, float b) const { return a + b; }
};

// The value of all block_x threads of a row together; `parts` has a place for every warp of the block.
template <int block_x, class Combine>
__device__ float of_row(float value, float* parts, Combine combine) {
#pragma unroll
    for (int step = 16; step > 0; step /= 2) value = combine(value, __shfl_xor_sync(0xffffffffu, value, step));
    if (block_x > 32) {
        constexpr int warps = block_x / 32;
        float* own = parts + threadIdx.y * warps;
        __syncthreads();  // the parts of the call before have been read
        if (threadIdx.x % 32 == 0) own[threadIdx.x / 32] = value;
        __syncthreads();
        value = own[0];
#pragma unroll
        for (int warp = 1; warp < warps; ++warp) value = combine(value, own[warp]);
    }
    return value;
}

template <int block_x, int block_y, int vector, bool online>
__global__ void softmax(const float* __restrict__ x, float* __restrict__ y, int rows, int columns) {
    __shared__ float parts[block_x * block_y / 32];
    const int row = blockIdx.x * block_y + threadIdx.y;
    const size_t first = size_t(min(row, rows - 1)) * columns;  // a row too many meets the barriers too
    const auto* from = reinterpret_cast<const Pack<vector>*>(x + first);
    auto* to = reinterpret_cast<Pack<vector>*>(y + first);
    const int packs = columns / vector;

    float largest = -3.4e38f, sum = 0.0f;
    for (int i = threadIdx.x; i < packs; i += block_x) {
        const Pack<vector> pack = from[i];
        const float before = largest;
#pragma unroll
        for (int v = 0; v < vector; ++v) largest = fmaxf(largest, pack.value[v]);
        if (online) {
            sum *= __expf(before - largest);
#pragma unroll
            for (int v = 0; v < vector; ++v) sum += __expf(pack.value[v] - largest);
        }
    }
    const float own = largest;
    largest = of_row<block_x>(largest, parts, Larger());
    if (online) {
        sum *= __expf(own - largest);
    } else {
        for (int i = threadIdx.x; i < packs; i += block_x) {
            const Pack<vector> pack = from[i];
#pragma unroll
            for (int v = 0; v < vector; ++v) sum += __expf(pack.value[v] - largest);
        }
    }
    const float scale = 1.0f / of_row<block_x>(sum, parts, Sum());
    if (row >= rows) return;
    for (int i = threadIdx.x; i < packs; i += block_x) {
        Pack<vector> pack = from[i];
#pragma unroll
        for (int v = 0; v < vector; ++v) pack.value[v] = __expf(pack.value[v] - largest) * scale;
        to[i] = pack;
    }
}

// What answers are compared with; a template, so that it is compiled for that alone.
template <class Real>
__global__ void naive(const float* __restrict__ x, float* __restrict__ y, int rows, int columns) {
    const int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row >= rows) return;
    const float* from = x + size_t(row) * columns;
    float largest = from[0];
    for (int i = 1; i < columns; ++i) largest = fmaxf(largest, from[i]);
    Real sum = 0;
    for (int i = 0; i < columns; ++i) sum += exp(Real(from[i]) - Real(largest));
    for (int i = 0; i < columns; ++i) y[size_t(row) * columns + i] = float(exp(Real(from[i]) - Real(largest)) / sum);
}
