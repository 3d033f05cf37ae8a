// What linear algebra does around the catalogue's kernels: copies of matrices of any strides, orders of rows,
// and diagonals. A thread has an element, or a block a matrix.

typedef long long Index;

// Divisions of 64 bits take longer than copies.
__device__ Index quotient(Index at, unsigned by) { return at >> 32 ? at / by : unsigned(at) / by; }

// Where a matrix of a batch, fewer than 2^31, begins.
__device__ Index lead(unsigned at, int two, int three, int four, Index step_one, int step_two, int step_three, int step_four) {
    if (at < unsigned(four)) return at * Index(step_four);
    const unsigned last = at % four, next = at / four;
    return next / three / two * step_one + next / three % two * Index(step_two) + next % three * Index(step_three) +
           last * Index(step_four);
}

// Part of a matrix that is read: the rest is zero.
enum Part { ALL, UPPER, LOWER };

// What a block copies at a time: so many numbers of narrow matrices one after another, or a square of one matrix, in
// which sources are read along j or, turned in shared memory, along i.
enum Way { NARROW, STRAIGHT, TURNED };

// Writes matrices (batch, height, width) without gaps. Element (i, j) is that of the source where the source,
// which is rows x columns, has it, times scales[i] and scales[j]; of rows in an order (of int), element (i, order[j]).
template <typename T, Part part, bool unit, bool ordered, bool scaled_down, bool scaled_across, Way way>
__global__ void moved(const T* __restrict__ from, T* __restrict__ to, const void* order, const T* scales, Index into,
                      int begin, int first, int batch, int height, int width, int rows, int columns, int down,
                      int across, int two, int three, int four, int step_one, int step_two, int step_three,
                      int step_four, int order_one, int order_two, int order_three, int order_four) {
    constexpr int threads = 256, side = 32, step = threads / side, chunk = 4 * threads;  // of a block
    const auto source = [&](unsigned matrix) {
        return from + begin + lead(matrix + first, two, three, four, step_one, step_two, step_three, step_four);
    };
    const auto element = [&](const T* source, unsigned matrix, int i, int j) {
        T value = 0;
        if (unit && i == j) {
            value = 1;
        } else if (i < rows && j < columns && (part == ALL || (part == UPPER ? i <= j : i >= j))) {
            int column = j;
            if (ordered)
                column = static_cast<const int*>(
                    order)[lead(matrix + first, two, three, four, order_one, order_two, order_three, order_four) + j];
            value = source[Index(i) * down + Index(column) * across];
            if (scaled_down) value *= scales[i];
            if (scaled_across) value *= scales[j];
        }
        return value;
    };
    if (way == NARROW) {
        const unsigned area = unsigned(height) * width;
        const Index all = Index(batch) * area;
        for (Index begun = Index(blockIdx.x) * chunk; begun < all; begun += Index(gridDim.x) * chunk) {
            const unsigned matrix = unsigned(quotient(begun, area)), before = unsigned(begun - Index(matrix) * area);
#pragma unroll
            for (unsigned at = threadIdx.x; at < chunk; at += threads) {
                if (begun + at >= all) continue;
                const unsigned own = matrix + (before + at) / area, rest = (before + at) % area;
                to[into + begun + at] = element(source(own), own, rest / width, rest % width);
            }
        }
        return;
    }
    __shared__ T tile[way == TURNED ? side : 1][side + 1];
    const int x = threadIdx.x % side, y = threadIdx.x / side;
    const int wide = (width + side - 1) / side, high = (height + side - 1) / side;
    const unsigned tiles = unsigned(batch) * high * wide;  // as many as memory holds
    for (unsigned at = blockIdx.x; at < tiles; at += gridDim.x) {
        const unsigned matrix = at / wide / high;
        const int top = int(at / wide % high) * side, left = int(at % wide) * side;
        const T* own = source(matrix);
        T* made = to + into + (Index(matrix) * height + top) * width + left;
        if (way == TURNED) {
#pragma unroll
            for (int line = y; line < side; line += step)
                if (top + x < height && left + line < width) tile[line][x] = element(own, matrix, top + x, left + line);
            __syncthreads();
        }
#pragma unroll
        for (int line = y; line < side; line += step)
            if (top + line < height && left + x < width)
                made[Index(line) * width + x] =
                    way == TURNED ? tile[x][line] : element(own, matrix, top + line, left + x);
        if (way == TURNED) __syncthreads();
    }
}

// Solves lower triangular systems (batch, n, n) for a few right sides (batch, n, many), whose rows may be in an order;
// solutions go to (batch, many, n), each from the last row on if turned. Lanes have the rows of a system, which reads
// each element of a triangle once for as many as `together` right sides.
template <typename T, int n, int together, bool unit, bool ordered, bool turned>
__global__ void substituted(const T* triangles, const T* from, T* to, const void* order, int begin, int from_begin, int batch,
                            int many, int down, int across, int from_down, int from_across, int two, int three, int four,
                            int step_one, int step_two, int step_three, int step_four, int from_one, int from_two,
                            int from_three, int from_four, int order_one, int order_two, int order_three,
                            int order_four) {
    constexpr int width = n <= 4 ? 4 : n <= 8 ? 8 : n <= 16 ? 16 : 32, held = (n + width - 1) / width;
    const int lane = threadIdx.x % width, parts = (many + together - 1) / together;
    const Index all = Index(batch) * parts, stride = Index(gridDim.x) * blockDim.x / width;
    // whole warps go on, for shuffles
    for (Index first = (Index(blockIdx.x) * blockDim.x + threadIdx.x) / 32 * (32 / width); first < all; first += stride) {
        const Index asked = first + threadIdx.x % 32 / width, at = asked < all ? asked : all - 1;
        const unsigned matrix = unsigned(parts == 1 ? at : at / parts);
        const int part = int(at - Index(matrix) * parts) * together;
        const T* triangle = triangles + begin + lead(matrix, two, three, four, step_one, step_two, step_three, step_four);
        const T* right = from + from_begin + lead(matrix, two, three, four, from_one, from_two, from_three, from_four);
        T x[held][together];
#pragma unroll
        for (int row = 0; row < held; ++row)
#pragma unroll
            for (int side = 0; side < together; ++side) {
                int i = row * width + lane;
                const bool inside = i < n && part + side < many;
                if (ordered && inside)
                    i = static_cast<const int*>(
                        order)[lead(matrix, two, three, four, order_one, order_two, order_three, order_four) + i];
                x[row][side] = inside ? right[Index(i) * from_down + Index(part + side) * from_across] : T(0);
            }
#pragma unroll
        for (int diagonal = 0; diagonal < held; ++diagonal)
#pragma unroll(4)
            for (int j = diagonal * width; j < (diagonal + 1) * width && j < n; ++j) {
                const T* column = triangle + Index(j) * across;
                const T pivot = unit ? T(1) : column[Index(j) * down], inverse = T(1) / pivot;
                const bool divides = inverse - inverse != 0;  // it overflows
                T below[held];
#pragma unroll
                for (int row = diagonal; row < held; ++row) {
                    const int i = row * width + lane;
                    below[row] = i > j && i < n ? column[Index(i) * down] : T(0);
                }
#pragma unroll
                for (int side = 0; side < together; ++side) {
                    T known = __shfl_sync(0xffffffffu, x[diagonal][side], j % width, width);
                    if (!unit) known = divides ? known / pivot : known * inverse;
                    if (lane == j % width) x[diagonal][side] = known;
#pragma unroll
                    for (int row = diagonal; row < held; ++row)
                        if (row * width + lane > j) x[row][side] -= below[row] * known;
                }
            }
#pragma unroll
        for (int row = 0; row < held; ++row)
#pragma unroll
            for (int side = 0; side < together; ++side) {
                const int i = row * width + lane;
                if (asked < all && i < n && part + side < many)
                    to[(Index(matrix) * many + part + side) * n + (turned ? n - 1 - i : i)] = x[row][side];
            }
    }
}

// Multiplies element (i, j) of a matrix (height, width) without gaps by scales[j].
template <typename T>
__global__ void scaled(T* matrices, const T* scales, int into, int height, int width) {
    const Index all = Index(height) * width, stride = Index(gridDim.x) * blockDim.x;
    T* matrix = matrices + into * all;
    for (Index at = Index(blockIdx.x) * blockDim.x + threadIdx.x; at < all; at += stride) matrix[at] *= scales[at % width];
}

// Row numbers after exchanges of row i with row pivots[i] - base, one after another; a block has a matrix.
template <typename P, bool shared>
__global__ void exchanged(const P* pivots, int* order, int base, int count, int pitch, int rows) {
    extern __shared__ int held[];
    const P* own = pivots + Index(blockIdx.x) * pitch;
    int* made = order + Index(blockIdx.x) * rows;
    int* kept = shared ? held : made;
    for (int row = threadIdx.x; row < rows; row += blockDim.x) kept[row] = row;
    __syncthreads();
    if (threadIdx.x == 0) {
        for (int row = 0; row < count; ++row) {
            const Index other = Index(own[row]) - base;
            if (other < 0 || other >= rows) continue;  // no pivot of a factorisation
            const int moved = kept[row];
            kept[row] = kept[other];
            kept[other] = moved;
        }
    }
    __syncthreads();
    if (shared)
        for (int row = threadIdx.x; row < rows; row += blockDim.x) made[row] = kept[row];
}

// Pivots from 0 of matrices that were filled up to squares, and what failed of the matrices themselves.
__global__ void settled(const int* pivots, int* made, int* info, int batch, int order, int least, int most) {
    const Index all = Index(batch) * least, stride = Index(gridDim.x) * blockDim.x;
    for (Index at = Index(blockIdx.x) * blockDim.x + threadIdx.x; at < all; at += stride) {
        const Index matrix = quotient(at, least), row = at - matrix * least;
        // infinity times zero fills rows up with NaN, which are pivots then
        const int pivot = pivots[matrix * order + row] - 1;
        made[at] = pivot < most ? pivot : most - 1;
        if (row == 0 && info[matrix] > least) info[matrix] = 0;
    }
}

// Powers of two near the inverse roots of pivots: multiplying by them is exact.
template <typename T>
__global__ void rooted(const T* pivots, T* made, int first, int count) {
    const Index stride = Index(gridDim.x) * blockDim.x;
    for (Index at = Index(blockIdx.x) * blockDim.x + threadIdx.x; at < count; at += stride) {
        const T pivot = pivots[Index(first) * count + at];
        int exponent = 0;
        if (pivot - pivot == 0) frexp(pivot, &exponent);
        const int half = exponent >= 0 ? exponent / 2 : -((1 - exponent) / 2);
        made[at] = ldexp(T(1), -half);
    }
}

// Vectors of random signs (n, width), scaled by powers of two near the inverse norms of columns, of which the diagonals of
// matrices (batch, n, n) are the squares.
template <typename T>
__global__ void probed(const T* grams, T* made, int batch, int n, int width) {
    const Index all = Index(batch) * n * width, stride = Index(gridDim.x) * blockDim.x;
    for (Index at = Index(blockIdx.x) * blockDim.x + threadIdx.x; at < all; at += stride) {
        const Index row = at / width;
        const unsigned drawn = unsigned(at) * 2654435761u, mixed = (drawn ^ drawn >> 15) * 2246822519u;
        int exponent = 0;
        frexp(grams[row * n + row % n], &exponent);
        made[at] = ldexp(mixed >> 31 ? T(1) : T(-1), -(exponent >> 1));
    }
}

// Adds a share of themselves to the diagonals of matrices (.., n, n).
template <typename T>
__global__ void shifted(T* matrices, T share, int rows, int n) {
    const Index stride = Index(gridDim.x) * blockDim.x;
    for (Index row = Index(blockIdx.x) * blockDim.x + threadIdx.x; row < rows; row += stride)
        matrices[row * n + row % n] += matrices[row * n + row % n] * share;
}

// Of symmetric matrices (.., n, n) that are I + E, E small: factor = I + U and inverse = I - U, where U + U' = E is the
// triangle of E with half its diagonal, and off[row], the sum of |E| in a row. A warp has a row of any matrix.
template <typename T>
__global__ void near_unit(const T* matrices, T* factor, T* inverse, T* off, int rows, int n) {
    const int lane = threadIdx.x % 32, warps = gridDim.x * (blockDim.x / 32);
    for (int row = blockIdx.x * (blockDim.x / 32) + threadIdx.x / 32; row < rows; row += warps) {
        const int i = row % n;
        T sum = 0;
        for (int j = lane; j < n; j += 32) {
            const Index at = Index(row) * n + j;
            const T unit = i == j, e = matrices[at] - unit, upper = i == j ? e / 2 : i < j ? e : T(0);
            sum += fabs(e);
            factor[at] = unit + upper;
            inverse[at] = unit - upper;
        }
        for (int apart = 16; apart > 0; apart /= 2) sum += __shfl_xor_sync(0xffffffffu, sum, apart);
        if (lane == 0) off[row] = sum;
    }
}
