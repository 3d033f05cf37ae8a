"""A stand-in for Rodinia's CUDA sources: own code, its files, functions and parameters; no host code."""

# ruff: noqa: E501 - CUDA code has lines of up to 120 columns

from pathlib import Path

LUD = """
#ifdef RD_WG_SIZE
#define BLOCK_SIZE RD_WG_SIZE
#else
#define BLOCK_SIZE 16
#endif
#define AT(row, column) a[(long long)(offset + (row)) * n + offset + (column)]

__global__ void lud_diagonal(float* a, int n, int offset)
{
    if (threadIdx.x > 0) return;
    for (int k = 0; k < BLOCK_SIZE; ++k)
        for (int i = k + 1; i < BLOCK_SIZE; ++i) {
            AT(i, k) /= AT(k, k);
            for (int j = k + 1; j < BLOCK_SIZE; ++j) AT(i, j) -= AT(i, k) * AT(k, j);
        }
}

__global__ void lud_perimeter(float* a, int n, int offset)
{
    const int t = threadIdx.x % BLOCK_SIZE, far = (blockIdx.x + 1) * BLOCK_SIZE + t;
    for (int i = 0; i < BLOCK_SIZE; ++i)
        if (threadIdx.x < BLOCK_SIZE) {
            for (int k = 0; k < i; ++k) AT(i, far) -= AT(i, k) * AT(k, far);
        } else {
            for (int k = 0; k < i; ++k) AT(far, i) -= AT(far, k) * AT(k, i);
            AT(far, i) /= AT(i, i);
        }
}

__global__ void lud_internal(float* a, int n, int offset)
{
    const int row = (blockIdx.y + 1) * BLOCK_SIZE + threadIdx.y;
    const int column = (blockIdx.x + 1) * BLOCK_SIZE + threadIdx.x;
    for (int k = 0; k < BLOCK_SIZE; ++k) AT(row, column) -= AT(row, k) * AT(k, column);
}
"""

HOTSPOT = """
#ifdef RD_WG_SIZE
#define BLOCK_SIZE RD_WG_SIZE
#else
#define BLOCK_SIZE 16
#endif

__global__ void calculate_temp(int iteration, float* power, float* before, float* after, int columns, int rows,
                               int border_columns, int border_rows, float capacity, float rx, float ry, float rz,
                               float step, float elapsed)
{
    __shared__ float tiles[2][BLOCK_SIZE][BLOCK_SIZE];
    const int x = threadIdx.x, y = threadIdx.y, inner = BLOCK_SIZE - 2 * iteration;
    const int column = inner * (int)blockIdx.x - border_columns + x, row = inner * (int)blockIdx.y - border_rows + y;
    const bool inside = column >= 0 && column < columns && row >= 0 && row < rows;
    const float watts = inside ? power[row * columns + column] : 0.0f;
    tiles[0][y][x] = inside ? before[row * columns + column] : 0.0f;
    __syncthreads();
    for (int s = 0; s < iteration; ++s) {
        auto& tile = tiles[s % 2];
        float t = tile[y][x];
        if (inside && x > s && x < BLOCK_SIZE - 1 - s && y > s && y < BLOCK_SIZE - 1 - s) {
            const float north = row > 0 ? tile[y - 1][x] : t, south = row < rows - 1 ? tile[y + 1][x] : t;
            const float west = column > 0 ? tile[y][x - 1] : t, east = column < columns - 1 ? tile[y][x + 1] : t;
            t += step / capacity * (watts + (north + south - 2 * t) / ry + (east + west - 2 * t) / rx + (80 - t) / rz);
        }
        tiles[1 - s % 2][y][x] = t;
        __syncthreads();
    }
    const bool sure = x >= iteration && x < BLOCK_SIZE - iteration && y >= iteration && y < BLOCK_SIZE - iteration;
    if (inside && sure) after[row * columns + column] = tiles[iteration % 2][y][x];
}
"""

STREAMCLUSTER = """
struct Point {
    float weight;
    float* coord;
    long assign;
    float cost;
};

__global__ void kernel_compute_cost(int num, int dim, long x, Point* p, int K, int stride, float* coord, float* work,
                                    int* table, bool* switched)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= num) return;
    float distance = 0.0f;
    for (int d = 0; d < dim; ++d) {
        const float apart = coord[d * num + i] - coord[d * num + x];
        distance += apart * apart;
    }
    const float more = distance * p[i].weight - p[i].cost;
    switched[i] = more < 0;
    work[i * stride + (more < 0 ? K : table[p[i].assign])] += more < 0 ? more : -more;
}
"""

SEARCH = """
__device__ int first_that_reaches(const double* cdf, double u, int n)
{
    int found = 0;
    while (found < n - 1 && cdf[found] < u) ++found;
    return found;
}
"""

FLOAT = (
    """
__device__ double drawn(int* seed, int i)
{
    const int next = (int)(1103515245u * (unsigned)seed[i] + 12345u);
    seed[i] = next % 2147483647;
    return fabs(seed[i] / 2147483647.0);
}

__device__ double normal(int* seed, int i)
{
    const double u = drawn(seed, i), v = drawn(seed, i);
    return sqrt(-2 * log(u)) * cos(2 * 3.14159265358979323846 * v);
}

__global__ void likelihood_kernel(double* arrayX, double* arrayY, double* xj, double* yj, double* CDF, int* ind,
                                  int* objxy, double* likelihood, unsigned char* I, double* u, double* weights,
                                  int N, int ones, int size, int k, int IszY, int Nfr, int* seed, double* sums)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i < N) {
        arrayX[i] = xj[i] + 1.0 + 5.0 * normal(seed, i);
        arrayY[i] = yj[i] - 2.0 + 2.0 * normal(seed, i);
        double sum = 0.0;
        for (int o = 0; o < ones; ++o) {
            const int x = (int)arrayX[i] + objxy[2 * o + 1], y = (int)arrayY[i] + objxy[2 * o];
            const int place = abs(x * IszY * Nfr + y * Nfr + k), pixel = I[place < size ? place : 0];
            sum += ((pixel - 100) * (pixel - 100) - (pixel - 228) * (pixel - 228)) / 50.0;
        }
        weights[i] = exp(sum / ones) / N;
    }
    __syncthreads();
    if (threadIdx.x > 0) return;
    double sum = 0.0;
    for (int j = i; j < N && j < i + (int)blockDim.x; ++j) sum += weights[j];
    sums[blockIdx.x] = sum;
}

__global__ void sum_kernel(double* sums, int N)
{
    if (blockIdx.x > 0 || threadIdx.x > 0) return;
    for (int b = 1; b * 512 < N; ++b) sums[0] += sums[b];
}

__global__ void normalize_weights_kernel(double* weights, int N, double* sums, double* CDF, double* u, int* seed)
{
    if (blockIdx.x > 0 || threadIdx.x > 0) return;
    const double first = drawn(seed, 0) / N;
    double so_far = 0.0;
    for (int i = 0; i < N; ++i) {
        CDF[i] = so_far += weights[i] / sums[0];
        u[i] = first + i / (double)N;
    }
}
"""
    + SEARCH
    + """
__global__ void find_index_kernel(double* arrayX, double* arrayY, double* CDF, double* u, double* xj, double* yj,
                                  double* weights, int N)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    const int found = first_that_reaches(CDF, u[i], N);
    xj[i] = arrayX[found];
    yj[i] = arrayY[found];
}
"""
)

NAIVE = (
    SEARCH
    + """
__global__ void kernel(double* arrayX, double* arrayY, double* CDF, double* u, double* xj, double* yj, int N)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    if (i >= N) return;
    const int found = first_that_reaches(CDF, u[i], N);
    xj[i] = arrayX[found];
    yj[i] = arrayY[found];
}
"""
)

FILES = {
    "lud/cuda/lud_kernel.cu": LUD,
    "hotspot/hotspot.cu": HOTSPOT,
    "streamcluster/streamcluster_cuda.cu": STREAMCLUSTER,
    "particlefilter/ex_particle_CUDA_float_seq.cu": FLOAT,
    "particlefilter/ex_particle_CUDA_naive_seq.cu": NAIVE,
}


def write(folder: Path, *replaced: tuple[str, str]) -> Path:
    """The tree below a folder, with texts replaced by others wherever they stand."""
    for path, text in FILES.items():
        for old, new in replaced:
            text = text.replace(old, new)  # noqa: PLW2901 - one after another
        to = folder / "cuda" / path
        to.parent.mkdir(parents=True, exist_ok=True)
        to.write_text(text)
    return folder
