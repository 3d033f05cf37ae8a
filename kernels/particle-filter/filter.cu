// One frame of a filter that tracks an object by N particles, its possible places. Each particle moves, by the speed of
// the object and by noise, and is weighted by how likely the disk of pixels around it shows the object. The normalised
// weights add up to a distribution, from which N new particles are drawn at evenly spaced points.

constexpr unsigned all_lanes = 0xffffffffu;
constexpr unsigned long long seed = 20261123;  // as laws.py has it
constexpr int radius = 5;

__host__ __device__ constexpr bool in_disk(int dx, int dy) { return dx * dx + dy * dy < radius * radius; }

__host__ __device__ constexpr int pixels_of_disk()
{
    int count = 0;
    for (int dy = -radius; dy <= radius; ++dy)
        for (int dx = -radius; dx <= radius; ++dx) count += in_disk(dx, dy);
    return count;
}

// Noise number i: the sum of four even numbers of 16 bits (splitmix64), about normal with deviation 0.58. It is a
// multiple of 2^-16, so that places are computed without rounding that could differ elsewhere.
__device__ double noise(unsigned long long i)
{
    unsigned long long z = seed + (i + 1) * 0x9e3779b97f4a7c15ull;
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    z ^= z >> 31;
    const int sum = int(z & 0xffff) + int(z >> 16 & 0xffff) + int(z >> 32 & 0xffff) + int(z >> 48);
    return (sum - 2 * 65535) / 65536.0;
}

// The log-likelihood: how much nearer the pixels are to the object's 228 than to the background's 100, on average.
// What is beyond the borders of the frame counts as neither. The sum of whole numbers has no rounding.
__device__ double likelihood(const unsigned char* __restrict__ frame, double x, double y, int H, int W)
{
    const int column = (int)floor(x + 0.5), row = (int)floor(y + 0.5);
    int sum = 0;
#pragma unroll
    for (int dy = -radius; dy <= radius; ++dy) {
        if (row + dy < 0 || row + dy >= H) continue;
        const unsigned char* line = frame + (size_t)(row + dy) * W;
#pragma unroll
        for (int dx = -radius; dx <= radius; ++dx) {
            if (!in_disk(dx, dy) || column + dx < 0 || column + dx >= W) continue;
            const int pixel = line[column + dx];
            sum += (pixel - 100) * (pixel - 100) - (pixel - 228) * (pixel - 228);
        }
    }
    return sum / (50.0 * pixels_of_disk());
}

// The sum of the values up to each thread's of a block of B, and by reference that of the whole block.
template <int B>
__device__ double block_scan(double value, double& total)
{
    __shared__ double of_warp[B / 32];
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int step = 1; step < 32; step *= 2) {
        const double left = __shfl_up_sync(all_lanes, value, step);
        if (lane >= step) value += left;
    }
    if (lane == 31) of_warp[warp] = value;
    __syncthreads();
    double before = 0.0;
    total = 0.0;
#pragma unroll
    for (int other = 0; other < B / 32; ++other) {
        if (other == warp) before = total;
        total += of_warp[other];
    }
    __syncthreads();  // the sums of warps are read before the next ones come
    return before + value;
}

// Places and weights of P particles per thread, B apart, and the sum of a block's weights.
template <int B, int P>
__global__ void __launch_bounds__(B)
weights(const unsigned char* __restrict__ frame, const double* __restrict__ x, const double* __restrict__ y,
        double* __restrict__ moved_x, double* __restrict__ moved_y, double* __restrict__ weight,
        double* __restrict__ sums, int N, int H, int W)
{
    double sum = 0.0, total;
    for (int p = 0; p < P; ++p) {
        const int i = (blockIdx.x * P + p) * B + threadIdx.x;
        if (i >= N) break;
        const double to_x = x[i] + 1.0 + 8.0 * noise(2ull * i), to_y = y[i] - 2.0 + 4.0 * noise(2ull * i + 1);
        moved_x[i] = to_x;
        moved_y[i] = to_y;
        weight[i] = exp(likelihood(frame, to_x, to_y, H, W));
        sum += weight[i];
    }
    block_scan<B>(sum, total);
    if (threadIdx.x == 0) sums[blockIdx.x] = total;
}

// One thread makes the whole distribution.
__global__ void serial_distribution(const double* __restrict__ weight, const double* __restrict__ sums,
                                    double* __restrict__ cdf, int N, int blocks)
{
    double total = 0.0, sum = 0.0;
    for (int b = 0; b < blocks; ++b) total += sums[b];
    for (int i = 0; i < N; ++i) {
        sum += weight[i] / total;
        cdf[i] = sum;
    }
}

// One block turns the sums of all blocks into what is before each of them, and the total behind the last.
template <int B>
__global__ void __launch_bounds__(B)
sums_before(const double* __restrict__ sums, double* __restrict__ before_block, int blocks)
{
    double before = 0.0, total;
    for (int first = 0; first < blocks; first += B) {
        const int i = first + threadIdx.x;
        const double up_to = before + block_scan<B>(i < blocks ? sums[i] : 0.0, total);
        if (i < blocks) before_block[i + 1] = up_to;
        before += total;
    }
    if (threadIdx.x == 0) before_block[0] = 0.0;
}

// Each block scans its P times B weights and adds what is before them.
template <int B, int P>
__global__ void __launch_bounds__(B)
distribution(const double* __restrict__ weight, const double* __restrict__ before, double* __restrict__ cdf, int N,
             int blocks)
{
    double so_far = before[blockIdx.x], total;
    for (int p = 0; p < P; ++p) {
        const int i = (blockIdx.x * P + p) * B + threadIdx.x;
        const double up_to = so_far + block_scan<B>(i < N ? weight[i] : 0.0, total);
        if (i < N) cdf[i] = up_to / before[blocks];
        so_far += total;
    }
}

// New particle i is the first whose distribution reaches (i + 1/2) / N; the last one where rounding leaves none.
template <int F, bool linear>
__global__ void __launch_bounds__(F)
resample(const double* __restrict__ cdf, const double* __restrict__ moved_x, const double* __restrict__ moved_y,
         int* __restrict__ index, double* __restrict__ new_x, double* __restrict__ new_y, int N)
{
    const int i = blockIdx.x * F + threadIdx.x;
    if (i >= N) return;
    const double u = (i + 0.5) / N;
    int found = 0;
    if (linear) {
        while (found < N - 1 && cdf[found] < u) ++found;
    } else {
        int end = N - 1;
        while (found < end) {
            const int middle = found + (end - found) / 2;
            if (cdf[middle] < u)
                found = middle + 1;
            else
                end = middle;
        }
    }
    index[i] = found;
    new_x[i] = moved_x[found];
    new_y[i] = moved_y[found];
}
