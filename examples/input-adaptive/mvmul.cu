// y = A x of a row-major matrix, H x W: T threads for a row, B / T rows in a block.
#pragma tuner problem(H = 1..65536, W = 1..65536)
#pragma tuner input A: float32[H, W] = uniform(0, 1)
#pragma tuner input x: float32[W] = uniform(0, 1)
#pragma tuner output y: float32[H]
#pragma tuner check y = matmul(A, x)
#pragma tuner toml problem.tolerance = 5e-5
#pragma tuner toml work = { bytes = "4 * H * W", operations = "2 * H * W" }
#pragma tuner erange B: 64, 512, 2
#pragma tuner erange T: 4, 512, 2
#pragma tuner constraint T <= B
#pragma tuner launch grid(ceil_div(H, ceil_div(B, T))) block(B)
template <int B = 256, int T = 32>
__global__ void mvmul(const float* __restrict__ A, const float* __restrict__ x, float* __restrict__ y, int H, int W)
{
    __shared__ float part[B];
    const int row = blockIdx.x * (B / T) + threadIdx.x / T, lane = threadIdx.x % T;
    float sum = 0.0f;
    if (row < H)
        for (int k = lane; k < W; k += T) sum += A[static_cast<size_t>(row) * W + k] * x[k];
    part[threadIdx.x] = sum;
    __syncthreads();
    for (int half = T / 2; half > 0; half /= 2) {
        if (lane < half) part[threadIdx.x] += part[threadIdx.x + half];
        __syncthreads();
    }
    if (lane == 0 && row < H) y[row] = part[threadIdx.x];
}
