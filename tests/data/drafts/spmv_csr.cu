#include <vector>
#include <cstdlib>

__global__ void spmv_csr(const int *row_ptr, const int *col_idx, const float *values, const float *x, float *y, int num_rows)
{
    int row = blockIdx.x * blockDim.x + threadIdx.x;
    if (row < num_rows) {
        float dot = 0;
        for (int jj = row_ptr[row]; jj < row_ptr[row + 1]; jj++) dot += values[jj] * x[col_idx[jj]];
        y[row] = dot;
    }
}

int main()
{
    int num_rows = 4096, nnz = 65536;
    int *d_rows, *d_cols;
    float *d_values, *d_x, *d_y;
    cudaMalloc(&d_rows, (num_rows + 1) * sizeof(int));
    cudaMalloc(&d_cols, nnz * sizeof(int));
    cudaMalloc(&d_values, nnz * sizeof(float));
    cudaMalloc(&d_x, num_rows * sizeof(float));
    cudaMalloc(&d_y, num_rows * sizeof(float));
    dim3 block(256);
    dim3 grid((num_rows + block.x - 1) / block.x);
    spmv_csr<<<grid, block>>>(d_rows, d_cols, d_values, d_x, d_y, num_rows);
    std::vector<float> y(num_rows);
}
