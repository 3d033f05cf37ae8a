// LU factorisation P A = L U of one column-major matrix in place with partial pivoting, as LAPACK's getrf: what a library
// does not do of it.
//
// A panel is factored by a block, or by the blocks of a cluster. A step for every column: each warp finds its largest
// element and publishes its row, each block passes the best row of its warps to all blocks, and every thread updates its
// rows. Rows are exchanged as soon as their pivot is known. Of several blocks a step takes two barriers, of one block one.
#include "cluster.cuh"
#include "panel_rows.cuh"
#include "pivots.cuh"

template <class T, int columns, int R, int stride>
struct InRegisters : RegisterRows<T, columns, R, stride> {
    using Rows = RegisterRows<T, columns, R, stride>;
    using Rows::at, Rows::m, Rows::row, Rows::Rows;

    __device__ __forceinline__ static T pivot(const T* line, int) { return line[0]; }

    __device__ __forceinline__ void search(int k, Candidate<T>& best) const {
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (row(r) >= k && row(r) < m) best.take_better(magnitude(at[r][0]), row(r));
    }

    __device__ __forceinline__ void publish(int which, T* line) const {
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (row(r) == which)
#pragma unroll
                for (int c = 0; c < columns; ++c) line[c] = at[r][c];
    }

    __device__ __forceinline__ void replace(int which, const T* line) {
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (row(r) == which)
#pragma unroll
                for (int c = 0; c < columns; ++c) at[r][c] = line[c];
    }

    // Eliminates column k below the pivot, and turns the slots on.
    template <class Multiplier>
    __device__ __forceinline__ void eliminate(int k, const T* line, Multiplier multiplier) {
        T u[columns];
#pragma unroll
        for (int c = 1; c < columns; ++c) u[c] = c < columns - k ? line[c] : T(0);
#pragma unroll
        for (int r = 0; r < R; ++r) {
            const bool below = row(r) > k;
            const T last = below ? multiplier(at[r][0]) : at[r][0], l = below ? last : T(0);
#pragma unroll
            for (int c = 1; c < columns; ++c) at[r][c - 1] = at[r][c] - l * u[c];
            at[r][columns - 1] = last;
        }
    }
};

template <class T, int columns, int stride>
struct InMemory : MemoryRows<T, stride> {
    using Rows = MemoryRows<T, stride>;
    using Rows::count, Rows::element, Rows::m, Rows::start, Rows::Rows;

    __device__ __forceinline__ static T pivot(const T* line, int k) { return line[k]; }

    __device__ __forceinline__ void search(int k, Candidate<T>& best) const {
        for (int row = start; row < m; row += stride)
            if (row >= k) best.take_better(magnitude(*element(row, k)), row);
    }

    __device__ __forceinline__ void publish(int which, T* line) const {
        if (which % stride != start) return;
        for (int c = 0; c < count; ++c) line[c] = *element(which, c);
    }

    __device__ __forceinline__ void replace(int which, const T* line) {
        if (which % stride != start) return;
        for (int c = 0; c < count; ++c) *element(which, c) = line[c];
    }

    template <class Multiplier>
    __device__ __forceinline__ void eliminate(int k, const T* line, Multiplier multiplier) {
        for (int row = start; row < m; row += stride) {
            if (row <= k) continue;
            const T l = multiplier(*element(row, k));
            *element(row, k) = l;
#pragma unroll 8
            for (int c = k + 1; c < count; ++c) *element(row, c) -= l * line[c];
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

// Candidates for the pivot row: of the warps of a block, then of the blocks; of odd and even steps.
template <class T, int columns, int count>
struct alignas(16) Candidates {
    T lines[2][count][columns];  // their rows
    T displaced[2][columns];     // the row that the pivot row is exchanged with, in block 0
    typename Candidate<T>::Key keys[2][count];
    int rows[2][count];
};

template <class T, int columns, int R, int B, int threads, int shared_bytes>
__device__ __forceinline__ void factor(T* A, int* ipiv, int* info, int n, int first) {
    constexpr int warps = threads / kWarp;
    using Shared = Candidates<T, columns, warps + (B > 1 ? B : 0)>;
    static_assert(sizeof(Shared) == shared_bytes, "the kernel file counts the same bytes");
    static_assert(columns <= threads && warps <= kWarp && B <= kWarp, "block 0 has the rows of the diagonal block");
    extern __shared__ float4 memory[];
    const Team<B, threads, shared_bytes> team(memory);
    Shared& own = *reinterpret_cast<Shared*>(team.memory);
    const int t = team.thread, warp = t / kWarp, m = n - first, count = min(columns, m);
    typename RowsOf<T, columns, R, B * threads>::Type rows(A + size_t(first) * n + first, n, m, count,
                                                           team.rank * threads + t);
    if constexpr (B > 1) {
        cluster_arrive();
        cluster_wait();  // all blocks have begun, and have shared memory
    }
    int bad = 0;
#pragma unroll 1
    for (int k = 0; k < columns; ++k) {
        if (k >= count) {
            rows.turn();
            continue;
        }
        const int half = k % 2;
        Candidate<T> mine{-1, m + t};
        rows.search(k, mine);
        const Candidate<T> best = best_of_warp(mine);
        if (mine.row == best.row) {
            own.keys[half][warp] = best.key;
            own.rows[half][warp] = best.row;
            if (best.key >= 0) rows.publish(best.row, own.lines[half][warp]);
        }
        if (team.rank == 0 && t == k) rows.publish(k, own.displaced[half]);
        __syncthreads();
        int winner = best_of<T>(own.keys[half], own.rows[half], warps);
        if constexpr (B > 1) {
            const int place = warps + team.rank;
            for (int e = t; e < B * columns; e += threads)
                *team.in_block(&own.lines[half][place][e % columns], e / columns) = own.lines[half][winner][e % columns];
            if (t < B) {
                *team.in_block(&own.keys[half][place], t) = own.keys[half][winner];
                *team.in_block(&own.rows[half][place], t) = own.rows[half][winner];
            }
            cluster_arrive();
            cluster_wait();
            winner = warps + best_of<T>(own.keys[half] + warps, own.rows[half] + warps, B);
        }
        const int row = own.rows[half][winner];
        const T* const line = own.lines[half][winner];
        if (row != k) {
            rows.replace(row, team.in_block(own.displaced[half], 0));
            rows.replace(k, line);
        }
        const T pivot = rows.pivot(line, k), inverse = T(1) / pivot;
        if (is_finite(inverse))
            rows.eliminate(k, line, [=](T x) { return x * inverse; });
        else  // LAPACK divides by pivots whose reciprocal overflows; below a pivot that is zero all is zero
            rows.eliminate(k, line, [=](T x) { return pivot == T(0) ? x : x / pivot; });
        if (team.rank == 0 && t == 0) {
            ipiv[first + k] = first + row + 1;
            if (pivot == T(0) && bad == 0) bad = first + k + 1;
        }
    }
    rows.store(count, [](int, int, T) {});
    if (team.rank == 0 && t == 0) {
        const int before = first == 0 ? 0 : *info;
        *info = before != 0 ? before : bad;
    }
    if constexpr (B > 1) {
        cluster_arrive();
        cluster_wait();  // no block ends while others use its shared memory
    }
}

// The panel of `columns` columns whose diagonal block begins at (first, first).
//   R     rows of a thread in registers, or 0 where they stay in device memory
//   ipiv  row i was exchanged with row ipiv[i], both from 1
//   info  number of the first pivot that is zero, from 1, else 0
template <class T, int columns, int R, int B, int threads, int shared_bytes>
__global__ void __launch_bounds__(threads, 1)
    panel(T* __restrict__ A, int* __restrict__ ipiv, int* __restrict__ info, int n, int first) {
    factor<T, columns, R, 1, threads, shared_bytes>(A, ipiv, info, n, first);
}

template <class T, int columns, int R, int B, int threads, int shared_bytes>
CLUSTER_KERNEL(B, threads)
cluster_panel(T* __restrict__ A, int* __restrict__ ipiv, int* __restrict__ info, int n, int first) {
    factor<T, columns, R, B, threads, shared_bytes>(A, ipiv, info, n, first);
}

enum class Columns { inside, next, rest };  // of the outer block, of the next one, and all others

// Exchanges rows in other columns as panels have exchanged theirs: inside of an outer block of `block` columns as the
// panel at `first` has, elsewhere as all panels of the outer block that ends with it. A warp has a column, a lane a row
// of the panel. Inside, the columns on the right are also solved against the unit lower triangle of the panel.
//   ahead  outer blocks that do not count as the rest
template <class T, int columns, Columns which>
__global__ void __launch_bounds__(128)
    exchange(T* __restrict__ A, const int* __restrict__ ipiv, int n, int first, int block, int ahead) {
    static_assert(columns <= kWarp, "a lane has a row");
    constexpr bool inside = which == Columns::inside;
    const int outer = first / block * block, begin = inside ? first : outer, panels = (first - begin) / columns + 1;
    const int from = inside ? outer : 0;                                             // columns on the left
    const int left = inside ? first - outer : which == Columns::rest ? outer : 0;    // their number
    const int right = inside ? first + columns : which == Columns::next ? outer + block : outer + (1 + ahead) * block;
    const int end = which == Columns::rest ? n : min(n, outer + (inside ? 1 : 2) * block);
    extern __shared__ float4 memory[];
    int* const comes = reinterpret_cast<int*>(memory);  // where the new row of a lane was before
    int* const goes = comes + panels * columns;         // where the old one is now
    T* const triangle = reinterpret_cast<T*>(goes + panels * columns);
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;

    if (lane < columns) {
        for (int p = warp; p < panels; p += 4) {
            const int base = begin + p * columns, count = min(columns, n - base);
            int origin = lane, now = lane;
            for (int i = count - 1; i >= 0; --i) {
                const int other = ipiv[base + i] - 1 - base;
                origin = origin == i ? other : origin == other ? i : origin;
            }
            for (int i = 0; i < count; ++i) {
                const int other = ipiv[base + i] - 1 - base;
                now = now == i ? other : now == other ? i : now;
            }
            comes[p * columns + lane] = origin;
            goes[p * columns + lane] = now;
        }
    }
    if constexpr (inside)
        for (int e = threadIdx.x; e < columns * columns; e += 128)
            triangle[e] = first + columns <= n ? A[size_t(first + e / columns) * n + first + e % columns] : T(0);
    __syncthreads();

    const int number = blockIdx.x * 4 + warp, column = number < left ? from + number : right + number - left;
    if (column >= end) return;
    T* const elements = A + size_t(column) * n + begin;
    for (int p = 0; p < panels; ++p) {
        const int base = p * columns;
        const bool live = lane < columns && begin + base + lane < n;
        T entering = T(0), leaving = T(0);
        if (live) {
            entering = elements[base + comes[base + lane]];
            leaving = elements[base + lane];
        }
        __syncwarp();
        if (inside && number >= left) {
#pragma unroll
            for (int k = 0; k < columns - 1; ++k) {
                const T above = __shfl_sync(kAllLanes, entering, k);
                if (lane > k && lane < columns) entering -= triangle[k * columns + lane] * above;
            }
        }
        if (live) {
            elements[base + lane] = entering;
            if (goes[base + lane] >= columns) elements[base + goes[base + lane]] = leaving;
        }
        __syncwarp();
    }
}
