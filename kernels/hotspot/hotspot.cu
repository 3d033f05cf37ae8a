// Temperatures of a chip: explicit steps of the heat equation on a grid of cells. A launch makes up to T steps. Its
// tiles overlap by T cells on every side, as each step leaves one ring of cells less that are right.
// A cell beyond a border is the mirror image of the one inside. Its power is mirrored too, so that it stays the image:
// the border cell always finds its own temperature there, and no step has to know where the borders are.

enum Place { REGISTER, SHARED, CACHE };  // where the power is kept between the steps

struct Coefficients {
    float heat, across, down, away, ambient;
};

// The row or column of n whose image, or which itself, lies at i: right up to n cells beyond a border.
__device__ int mirrored(int i, int n)
{
    i = max(i, -1 - i);
    return max(min(i, 2 * n - 1 - i), 0);
}

// Where a cell lies in an array, which may hold more than 2^32 of them.
__device__ size_t place(int row, int column, int columns)
{
    return (size_t)(unsigned)row * (unsigned)columns + (unsigned)column;
}

// X * Y threads have R rows each of a tile of X columns and Y * R rows. Cells are shared by their place in the thread:
// lanes read and write neighbouring words whatever R is. With one buffer, all wait until all have read.
template <int X, int Y, int R, int T, int BUFFERS, Place PLACE>
__global__ void __launch_bounds__(X * Y)
hotspot(const float* __restrict__ before, float* __restrict__ after, const float* __restrict__ power, int rows,
        int columns, Coefficients c, int steps)
{
    constexpr int threads = X * Y, tall = Y * R;
    __shared__ float tiles[BUFFERS][R * threads];
    __shared__ float kept[PLACE == SHARED ? R * threads : 1];
    const int x = threadIdx.x, y = threadIdx.y, own = y * X + x;
    const int column = blockIdx.x * (X - 2 * T) - T + x, row = blockIdx.y * (tall - 2 * T) - T + y * R;
    const int inner = mirrored(column, columns);
    const auto cell = [&](int r) { return place(mirrored(row + r, rows), inner, columns); };
    const auto source = [&](float watts) { return c.heat * watts + c.away * c.ambient; };

    float t[R], held[PLACE == REGISTER ? R : 1];
#pragma unroll
    for (int r = 0; r < R; ++r) {
        t[r] = before[cell(r)];
        if (PLACE == REGISTER) held[r] = source(power[cell(r)]);
        if (PLACE == SHARED) kept[r * threads + own] = source(power[cell(r)]);
    }
    const int west = own - (x > 0), east = own + (x < X - 1);  // the tile's outermost cells are never right
    const int north = y > 0 ? (R - 1) * threads + own - X : own;
    const int south = y < Y - 1 ? own + X : (R - 1) * threads + own;
    for (int step = 0; step < steps; ++step) {
        float* tile = tiles[step % BUFFERS];
        if (BUFFERS == 1 && step > 0) __syncthreads();
#pragma unroll
        for (int r = 0; r < R; ++r) tile[r * threads + own] = t[r];
        __syncthreads();
        float above = tile[north];
        const float below = tile[south];
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const float now = t[r], next = r + 1 < R ? t[r + 1] : below;
            const float gain = PLACE == REGISTER ? held[r]
                               : PLACE == SHARED ? kept[r * threads + own]
                                                 : source(power[cell(r)]);
            const float sides = tile[west + r * threads] + tile[east + r * threads];
            const float sideways = fmaf(-2.0f, now, sides), upright = fmaf(-2.0f, now, above + next);
            t[r] += gain - c.away * now + c.across * sideways + c.down * upright;
            above = now;
        }
    }
    if (x < T || x >= X - T || column >= columns) return;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const int in_tile = y * R + r;
        if (in_tile >= T && in_tile < tall - T && row + r < rows) after[place(row + r, column, columns)] = t[r];
    }
}
