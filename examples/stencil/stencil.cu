// One step of heat in an n x n plate: the mean of the four neighbours. Edges stay as they are.
// Every thread goes down `rows` rows of one column and keeps what it has read of it in registers.
template <int block_size_x, int block_size_y, int rows>
__global__ void stencil(const float* __restrict__ x, float* __restrict__ y, int n)
{
    const int column = blockIdx.x * block_size_x + threadIdx.x;
    const int first = (blockIdx.y * block_size_y + threadIdx.y) * rows;
    if (column >= n || first >= n) return;
    float above = first > 0 ? x[(size_t)(first - 1) * n + column] : 0.0f;
    float here = x[(size_t)first * n + column];
#pragma unroll
    for (int k = 0; k < rows; ++k) {
        const int row = first + k;
        if (row < n) {
            const size_t i = (size_t)row * n + column;
            const float below = row < n - 1 ? x[i + n] : 0.0f;
            const bool edge = row == 0 || row == n - 1 || column == 0 || column == n - 1;
            y[i] = edge ? here : 0.25f * (above + below + x[i - 1] + x[i + 1]);
            above = here;
            here = below;
        }
    }
}
