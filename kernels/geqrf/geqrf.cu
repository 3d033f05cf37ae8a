// QR factorisation A = Q R of one column-major matrix in place by Householder reflections, as LAPACK's geqrf: what a
// library does not do of it.
//
// A panel is factored by a block, or by the blocks of a cluster. A step for every column: products of this column with all
// columns of the panel are summed over the rows; they give the reflection, what it does to the columns behind, and with
// the columns before the triangle T of the panel, I - V T V' = H(1) ... H(columns). A step takes one barrier; the blocks of
// a cluster then send each other their sums. Columns near the ends of the range of numbers are brought near 1 before, and
// R is brought back behind: scaled columns have the same Q. What is left of a column may still be too small to be squared;
// it is then multiplied by a power of two, and its step begins again.
#include "cluster.cuh"
#include "panel_rows.cuh"
#include "pivots.cuh"
#include "threads.cuh"

// Powers of two. Columns whose largest element is from 2^-wide to 2^wide stay as they are: their squares do not overflow,
// and a sum of squares above `low` has lost nothing to underflow. Two factors `up` bring any smaller one but 0 above it.
template <class T>
struct Range;
template <>
struct Range<float> {
    static constexpr int wide = 30, digits = 23, bias = 127;
    static constexpr float low = 0x1p-80f, up = 0x1p60f, down = 0x1p-60f;
};
template <>
struct Range<double> {
    static constexpr int wide = 400, digits = 52, bias = 1023;
    static constexpr double low = 0x1p-900, up = 0x1p500, down = 0x1p-500;
};

constexpr int kZero = -0x7fffffff;  // in the place of the exponent of a column of zeros

// What a step does: x becomes scale x in this column, and c - factor x in the others.
template <class T>
struct Reflection {
    T beta, tau, scale, pivot;  // the new diagonal element; of H = I - tau v v'; v by x; x in the row of the diagonal
};

// Of the diagonal element and the sum of squares below it.
template <class T>
__device__ __forceinline__ Reflection<T> reflection(T alpha, T squares) {
    if (squares == T(0)) return {alpha, T(0), T(0), T(0)};
    const T norm = sqrt(alpha * alpha + squares), beta = alpha >= T(0) ? -norm : norm;
    return {beta, (beta - alpha) / beta, T(1) / (alpha - beta), alpha - beta};
}

template <class T, int columns, int R, int stride>
struct InRegisters : RegisterRows<T, columns, R, stride> {
    using Rows = RegisterRows<T, columns, R, stride>;
    using Rows::at, Rows::row, Rows::Rows;

    // Adds the products of column k below the diagonal with all columns.
    __device__ __forceinline__ void multiply(int k, T (&sums)[columns]) const {
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const T x = row(r) > k ? at[r][0] : T(0);
#pragma unroll
            for (int c = 0; c < columns; ++c) sums[c] += x * at[r][c];
        }
    }

    // Multiplies column k from the diagonal on.
    __device__ __forceinline__ void scale(int k, T factor) {
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (row(r) >= k) at[r][0] *= factor;
    }

    __device__ __forceinline__ void publish(int, T* line) const {  // row k, which is the first of its thread
#pragma unroll
        for (int c = 0; c < columns; ++c) line[c] = at[0][c];
    }

    // Applies the reflection, and turns the slots on.
    __device__ __forceinline__ void apply(int k, const T* factors, const Reflection<T>& h) {
        T f[columns];
#pragma unroll
        for (int c = 1; c < columns; ++c) f[c] = factors[c];
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const T first = at[r][0];
            const bool below = row(r) > k, on = row(r) == k;
            const T x = below ? first : on ? h.pivot : T(0);
#pragma unroll
            for (int c = 1; c < columns; ++c) at[r][c - 1] = at[r][c] - f[c] * x;
            at[r][columns - 1] = below ? first * h.scale : on ? h.beta : first;
        }
    }
};

template <class T, int columns, int stride>
struct InMemory : MemoryRows<T, stride> {
    using Rows = MemoryRows<T, stride>;
    using Rows::count, Rows::element, Rows::m, Rows::n, Rows::start, Rows::Rows;

    __device__ __forceinline__ void multiply(int k, T (&sums)[columns]) const {
        for (int row = start; row < m; row += stride) {
            if (row <= k) continue;
            const T x = *element(row, k);
            const T* from = element(row, k);
            int column = k;
#pragma unroll
            for (int c = 0; c < columns; ++c) {
                if (column < count) sums[c] += x * *from;
                from += n;
                if (++column == columns) column = 0, from = element(row, 0);
            }
        }
    }

    __device__ __forceinline__ void scale(int k, T factor) {
        for (int row = start; row < m; row += stride)
            if (row >= k) *element(row, k) *= factor;
    }

    __device__ __forceinline__ void publish(int k, T* line) const {
        for (int c = 0; c < columns; ++c) {
            const int column = k + c < columns ? k + c : k + c - columns;
            line[c] = column < count ? *element(k, column) : T(0);
        }
    }

    __device__ __forceinline__ void apply(int k, const T* factors, const Reflection<T>& h) {
        for (int row = start; row < m; row += stride) {
            if (row < k) continue;
            const T first = *element(row, k), x = row > k ? first : h.pivot;
#pragma unroll 8
            for (int c = 1; c < count - k; ++c) *element(row, k + c) -= factors[c] * x;
            *element(row, k) = row > k ? first * h.scale : h.beta;
        }
    }
};

template <class T, int columns, int R, int stride>
struct RowsOf {
    using Type = InRegisters<T, columns, R, stride>;
};
template <class T, int columns, int stride>
struct RowsOf<T, columns, 0, stride> {
    using Type = InMemory<T, columns, stride>;
};

// Sums of `columns` values over the lanes of a warp: of value c in all lanes whose number is c mod `columns`. Lanes d apart
// exchange all values, then halves of those that they still have.
template <int columns, int d = kWarp / 2, class T>
__device__ __forceinline__ T sums_of_warp(T (&values)[columns]) {
    if constexpr (d >= columns) {
#pragma unroll
        for (int c = 0; c < columns; ++c) values[c] += __shfl_xor_sync(kAllLanes, values[c], d);
    } else if constexpr (d > 0) {
        const bool upper = threadIdx.x & d;
#pragma unroll
        for (int c = 0; c < d; ++c) {
            const T mine = upper ? values[c + d] : values[c], other = upper ? values[c] : values[c + d];
            values[c] = mine + __shfl_xor_sync(kAllLanes, other, d);
        }
    }
    if constexpr (d > 0)
        return sums_of_warp<columns, d / 2>(values);
    else
        return values[0];
}

// Sums that are sent at once.
template <class T>
struct alignas(16) Together {
    static constexpr int count = 16 / sizeof(T);
    T value[count];
};

template <class T, int columns, int warps, int blocks>
struct alignas(16) Shared {
    T sums[2][warps + blocks][columns];  // of the warps of a block, then of the blocks; of odd and even steps
    T row[2][columns];                   // of the diagonal
    T factors[warps][columns];           // of a reflection; each warp has its own
    T products[columns][columns];        // of the vectors of reflections, above the diagonal
    T tau[columns];
    Mailbox mail[2];                     // for the sums of blocks, and the row of the diagonal
};

template <class T, int columns, int R, int B, int threads, int shared_bytes>
__device__ __forceinline__ void factor(T* A, T* V, T* triangle, T* tau, const int* exponents, int n, int block,
                                       int first) {
    constexpr int warps = threads / kWarp;
    using Own = Shared<T, columns, warps, (B > 1 ? B : 0)>;
    static_assert(sizeof(Own) == shared_bytes, "the kernel file counts the same bytes");
    static_assert(columns <= kWarp && columns <= threads, "block 0 has the rows of the diagonal block");
    extern __shared__ float4 memory[];
    const Team<B, threads, shared_bytes> team(memory);
    Own& own = *reinterpret_cast<Own*>(team.memory);
    const int t = team.thread, lane = t % kWarp, warp = t / kWarp, slot = lane % columns;
    const int m = n - first, count = min(columns, m);
    const bool leads = team.rank == 0 && warp == 0;
    typename RowsOf<T, columns, R, B * threads>::Type rows(A + size_t(first) * n + first, n, m, count,
                                                           team.rank * threads + t);
    if constexpr (B > 1) {
        if (t == 0) own.mail[0].open(), own.mail[1].open();
        cluster_arrive();
        cluster_wait();  // all blocks have begun, and have shared memory
    }
#pragma unroll 1
    for (int pass = 0, k = 0, scaled = 0; k < columns; ++pass) {  // most columns take one
        if (k >= count) {
            rows.turn();
            if (t == 0) own.tau[k] = T(0);
            ++k;
            continue;
        }
        const int half = pass % 2;
        T values[columns] = {};
        rows.multiply(k, values);
        const T summed = sums_of_warp<columns>(values);
        if (lane < columns) own.sums[half][warp][lane] = summed;
        if (team.rank == 0 && t == k) rows.publish(k, own.row[half]);
        __syncthreads();
        T sum = T(0);
        if constexpr (B == 1) {
#pragma unroll
            for (int w = 0; w < warps; ++w) sum += own.sums[half][w][slot];
        } else {
            using Word = Together<T>;
            constexpr int words = columns / Word::count;
            Mailbox& mail = own.mail[half];
            if (t == 0) mail.expect((team.rank > 0 ? B + 1 : B) * columns * sizeof(T));
            for (int e = t; e < B * words; e += threads) {
                const int other = e / words, c = e % words * Word::count;
                Word part = {};
#pragma unroll
                for (int w = 0; w < warps; ++w)
#pragma unroll
                    for (int i = 0; i < Word::count; ++i) part.value[i] += own.sums[half][w][c + i];
                mail.send(team, part, reinterpret_cast<Word*>(&own.sums[half][warps + team.rank][c]), other);
                Word* const beside = reinterpret_cast<Word*>(&own.row[half][c]);
                if (team.rank == 0 && other > 0) mail.send(team, *beside, beside, other);
            }
            mail.wait(pass / 2);
#pragma unroll
            for (int b = 0; b < B; ++b) sum += own.sums[half][warps + b][slot];
        }
        const T beside = own.row[half][slot], alpha = own.row[half][0], squares = __shfl_sync(kAllLanes, sum, 0);
        if (squares + alpha * alpha < Range<T>::low && scaled < 2 && exponents[first + k] != kZero) {
            rows.scale(k, Range<T>::up);
            ++scaled;
            continue;
        }
        Reflection<T> h = reflection(alpha, squares);
        const bool open = slot < columns - k;  // columns behind this one; the others hold vectors
        if (lane < columns) {
            own.factors[warp][lane] = open ? h.tau * (beside + h.scale * sum) * h.scale : T(0);
            if (leads && !open) own.products[slot - (columns - k)][k] = h.scale * sum + beside;
        }
        if (t == 0) {
            own.tau[k] = h.tau;
            if (leads) tau[first + k] = h.tau;
        }
        for (; scaled > 0; --scaled) h.beta *= Range<T>::down;
        __syncwarp();
        rows.apply(k, own.factors[warp], h);
        ++k;
    }

    // The vectors with their zeros and ones: zeros from the first row of the outer block on.
    const int outer = first / block * block;
    T* const vectors = V + size_t(outer / block % 2) * block * n + size_t(first - outer) * n;
    __syncthreads();
    rows.store(count, [&](int row, int c, T element) {
        vectors[size_t(c) * n + first + row] = own.tau[c] == T(0) || row < c ? T(0) : row == c ? T(1) : element;
    });
    for (int c = 0; c < count; ++c)
        for (int row = outer + team.rank * threads + t; row < first; row += B * threads)
            vectors[size_t(c) * n + row] = T(0);

    if (leads && lane < columns) {  // column k of T is - tau T V' v of the columns before it; a lane has a row
#pragma unroll 1
        for (int k = 0; k < columns; ++k) {
            T sum = T(0);
            if (lane < k && k < count) {
                sum = own.tau[lane] * own.products[lane][k];
                for (int l = lane + 1; l < k; ++l) sum += own.products[l][lane] * own.products[l][k];
                own.products[k][lane] = -own.tau[k] * sum;  // below the diagonal is room for it
            }
            triangle[k * columns + lane] = lane == k ? own.tau[k] : lane < k ? -own.tau[k] * sum : T(0);
        }
    }
    if constexpr (B > 1) {
        cluster_arrive();
        cluster_wait();  // no block ends while others use its shared memory
    }
}

// The panel of `columns` columns whose diagonal begins at (first, first).
//   R         rows of a thread in registers, or 0 where they stay in device memory
//   V         vectors of two outer blocks of `block` columns in turn, each n x block; of reflections with tau 0 zeros
//   triangle  T of the panel, column-major
//   exponents of bring_near()
template <class T, int columns, int R, int B, int threads, int shared_bytes>
__global__ void __launch_bounds__(threads, 1)
    panel(T* __restrict__ A, T* __restrict__ V, T* __restrict__ triangle, T* __restrict__ tau,
          const int* __restrict__ exponents, int n, int block, int first) {
    factor<T, columns, R, 1, threads, shared_bytes>(A, V, triangle, tau, exponents, n, block, first);
}

template <class T, int columns, int R, int B, int threads, int shared_bytes>
CLUSTER_KERNEL(B, threads)
cluster_panel(T* __restrict__ A, T* __restrict__ V, T* __restrict__ triangle, T* __restrict__ tau,
              const int* __restrict__ exponents, int n, int block, int first) {
    factor<T, columns, R, B, threads, shared_bytes>(A, V, triangle, tau, exponents, n, block, first);
}

// The diagonal of the inverse of T of an outer block: 1 / tau (C. Puglisi, SIAM J. Sci. Stat. Comput. 13 (1992) 723).
// Where tau is 0, the vector is 0 in V and anything does.
template <class T>
__global__ void __launch_bounds__(128) diagonal(T* __restrict__ inverse, const T* __restrict__ tau, int block, int first) {
    const int j = blockIdx.x * 128 + threadIdx.x;
    const T* const of_block = tau + first / block * block;
    if (j < block) inverse[size_t(j) * (block + 1)] = of_block[j] == T(0) ? T(1) : T(1) / of_block[j];
}

// Multiplies columns whose largest element is far from 1 by powers of two that bring it near 1, and notes their exponents.
template <class T>
__global__ void __launch_bounds__(256) bring_near(T* __restrict__ A, int* __restrict__ exponents, int n) {
    using Key = decltype(magnitude(T()));
    constexpr int warps = 256 / kWarp;
    __shared__ Key of_warps[warps];
    T* const column = A + size_t(blockIdx.x) * n;
    Key largest = 0;
    for (int row = threadIdx.x; row < n; row += 256) largest = max(largest, magnitude(column[row]));
    largest = largest_of_warp(largest);
    if (threadIdx.x % kWarp == 0) of_warps[threadIdx.x / kWarp] = largest;
    __syncthreads();
    for (int w = 0; w < warps; ++w) largest = max(largest, of_warps[w]);
    const int exponent = int(largest >> Range<T>::digits) - Range<T>::bias;  // denormal numbers have that of 0
    const bool finite = exponent <= Range<T>::bias, near = exponent >= -Range<T>::wide && exponent <= Range<T>::wide;
    const bool scaled = largest != 0 && finite && !near;
    if (threadIdx.x == 0) exponents[blockIdx.x] = largest == 0 ? kZero : scaled ? exponent : 0;
    if (!scaled) return;
    for (int row = threadIdx.x; row < n; row += 256) column[row] = ldexp(column[row], -exponent);
}

// Brings R back.
template <class T>
__global__ void __launch_bounds__(128) bring_back(T* __restrict__ A, const int* __restrict__ exponents, int n) {
    T* const column = A + size_t(blockIdx.x) * n;
    const int exponent = exponents[blockIdx.x];
    if (exponent == 0 || exponent == kZero) return;
    for (int row = threadIdx.x; row <= blockIdx.x; row += 128) column[row] = ldexp(column[row], exponent);
}
