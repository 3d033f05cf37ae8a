// LU factorisation P A = L U of one column-major matrix in place with partial pivoting, as LAPACK's getrf: what a library
// does not do of it. The matrix has n columns, and `height` rows, at least as many.
//
// A panel is factored by a block, or by the blocks of a cluster. A step for every column: each warp finds its largest
// element and publishes its row, each block passes the best row of its warps to all blocks, and every thread updates its
// rows. A panel may begin with what the panel before does to it: an exchange of rows, a triangular solve and a small
// product, which are short in registers.
#include "cluster.cuh"
#include "exchange.cuh"
#include "rows.cuh"

// Shared memory of a block.
template <class T, int columns, int warps, int blocks>
struct alignas(16) Shared {
    Line<T, columns> lines[2][warps + blocks];  // of the warps of a block, then of the blocks; of odd and even steps
    T triangle[columns * columns];              // of the panel before, column-major
    T upper[columns * columns];                 // its rows in the columns of this one, row-major
    int goes[columns];                          // where its rows have gone
    int pivots[columns];                        // of this panel
    Mailbox mail[2];                            // for the lines of blocks
};

// The rows of the panel before, in columns of this one: a lane has a row, a warp every so many columns.
template <class T, int columns, int warps>
struct Upper {
    static constexpr int each = (columns + warps - 1) / warps;
    T at[each];
    const int lane, warp;

    // Loads them from where they are found, with the triangle of the panel before, and where its rows have gone.
    template <class Shared>
    __device__ __forceinline__ void load(Shared& own, const T* A, const int* comes, const int* goes, int height, int base,
                                         int count) {
        for (int e = warp * kWarp + lane; e < columns * columns; e += warps * kWarp)
            own.triangle[e] = A[size_t(base + e / columns) * height + base + e % columns];
        if (warp == 0 && lane < columns) own.goes[lane] = goes[base + lane];
        const int origin = lane < columns ? base + comes[base + lane] : 0;
#pragma unroll
        for (int i = 0; i < each; ++i) {
            const int c = warp + i * warps;
            at[i] = lane < columns && c < count ? A[size_t(base + columns + c) * height + origin] : T(0);
        }
    }

    template <class Shared>
    __device__ __forceinline__ void solve(Shared& own) {
#pragma unroll 4
        for (int k = 0; k < columns - 1; ++k) {
            const T l = lane > k && lane < columns ? own.triangle[k * columns + lane] : T(0);
#pragma unroll
            for (int i = 0; i < each; ++i) at[i] -= l * __shfl_sync(kAllLanes, at[i], k);
        }
#pragma unroll
        for (int i = 0; i < each; ++i) {
            const int c = warp + i * warps;
            if (lane < columns && c < columns) own.upper[lane * columns + c] = at[i];
        }
    }
};

template <class T, int columns, int R, int B, int threads, int shared_bytes>
__device__ __forceinline__ void factor(T* A, int* ipiv, int* info, int* comes, int* goes, int height, int n, int first,
                                       int joined) {
    constexpr int warps = threads / kWarp;
    using Own = Shared<T, columns, warps, (B > 1 ? B : 0)>;
    static_assert(sizeof(Own) == shared_bytes, "the kernel file counts the same bytes");
    static_assert(columns <= kWarp && warps <= kWarp && B <= kWarp, "a lane has a row, a warp or a block");
    extern __shared__ float4 memory[];
    const Team<B, threads, shared_bytes> team(memory);
    Own& own = *reinterpret_cast<Own*>(team.memory);
    const int t = team.thread, warp = t / kWarp, start = team.rank * threads + t;
    const int m = height - first, count = min(columns, n - first), base = first - columns;
    T* const corner = A + size_t(first) * height + first;
    if constexpr (B > 1) {
        if (t == 0) own.mail[0].open(), own.mail[1].open();
        cluster_arrive();
    }
    Upper<T, columns, warps> upper{{}, t % kWarp, warp};
    if (R > 0 && joined) {
        upper.load(own, A, comes, goes, height, base, count);
        __syncthreads();
    }
    auto rows = [&] {
        if constexpr (R == 0)
            return InMemory<T, columns, B * threads>(corner, height, m, count, start);
        else
            return InRegisters<T, columns, R, B * threads>(corner, height, m, count, start, [&](int row) {
                if (!joined) return row;
                int found = row;
                for (int i = 0; i < columns; ++i) found = own.goes[i] == row + columns ? i - columns : found;
                return found;
            });
    }();
    if constexpr (R > 0)
        if (joined) {
            upper.solve(own);  // while the rows are loaded
            __syncthreads();
            rows.subtract(A + size_t(base) * height + first, own.upper);
        }
    if constexpr (B > 1) cluster_wait();  // all blocks have begun, and have shared memory

    int bad = 0;
    Choice<T> choice;
    rows.choose(0, choice);
#pragma unroll 1
    for (int k = 0; k < count; ++k) {
        Line<T, columns>* const lines = own.lines[k % 2];
        if (choice.mine) {
            lines[warp].key = choice.best.key;
            lines[warp].place = choice.best.row;
            if (choice.best.key >= 0) rows.publish(k, choice.best.row, lines[warp]);
        }
        __syncthreads();
        int winner = best_of<T>(lines, warps);
        if constexpr (B > 1) {
            constexpr int words = sizeof(Line<T, columns>) / sizeof(float4), rounds = (B * words + threads - 1) / threads;
            Mailbox& mail = own.mail[k % 2];
            const float4* const from = reinterpret_cast<const float4*>(lines + winner);
            float4* const to = reinterpret_cast<float4*>(lines + warps + team.rank);
            constexpr bool mailed = R > 0;  // else rows are in device memory, and a barrier orders what is done to them
            if (mailed && t == 0) mail.expect(B * sizeof(Line<T, columns>));
#pragma unroll
            for (int i = 0; i < rounds; ++i) {
                const int e = t + i * threads, word = e % words, other = e / words;
                if (other >= B) continue;
                if constexpr (mailed)
                    mail.send(team, from[word], to + word, other);
                else
                    *team.in_block(to + word, other) = from[word];
            }
            if constexpr (mailed) {
                mail.wait(k / 2);
            } else {
                cluster_arrive();
                cluster_wait();
            }
            winner = warps + best_of<T>(lines + warps, B);
        }
        const Line<T, columns>& line = lines[winner];
        const T pivot = rows.pivot(line, k);
        const bool divided = !is_finite(line.inverse);  // as LAPACK does where the reciprocal overflows
        rows.exchange(k, line);
        if (divided && pivot != T(0)) rows.divide(k, pivot);
        rows.eliminate(k, line, divided ? T(1) : line.inverse, choice);
        if (t == 0) {
            own.pivots[k] = line.place;
            if (team.rank == 0) ipiv[first + k] = first + line.place + 1;
            if (pivot == T(0) && bad == 0) bad = first + k + 1;
        }
    }
#pragma unroll 1
    for (int k = count; k < columns; ++k) rows.turn();
    if constexpr (R == 0) __syncthreads();
    rows.finish(count, own.pivots, comes + first, goes + first);
    if (team.rank == 0) {
        if (R > 0 && joined)
            for (int e = t; e < columns * count; e += threads)
                (corner - columns)[size_t(e / columns) * height + e % columns] = own.upper[e % columns * columns + e / columns];
        if (t == 0) {
            const int before = first == 0 ? 0 : *info;
            *info = before != 0 ? before : bad;
        }
    }
    if constexpr (B > 1) {
        cluster_arrive();
        cluster_wait();  // no block ends while others use its shared memory
    }
}

// The panel of `columns` columns whose diagonal block begins at (first, first).
//   R            rows of a thread in registers, or 0 where they stay in device memory
//   ipiv         row i was exchanged with row ipiv[i], both from 1
//   info         number of the first pivot that is zero, from 1, else 0
//   comes, goes  row i of a panel comes from row comes[first + i], and the row that was there has gone to
//                goes[first + i], both counted from the first row of the panel
//   joined       begin with what the panel before does to this one
template <class T, int columns, int R, int B, int threads, int shared_bytes>
__global__ void __launch_bounds__(threads, 1) panel(T* __restrict__ A, int* __restrict__ ipiv, int* __restrict__ info,
                                                    int* comes, int* goes, int height, int n, int first, int joined) {
    factor<T, columns, R, 1, threads, shared_bytes>(A, ipiv, info, comes, goes, height, n, first, joined);
}

template <class T, int columns, int R, int B, int threads, int shared_bytes>
CLUSTER_KERNEL(B, threads)
cluster_panel(T* __restrict__ A, int* __restrict__ ipiv, int* __restrict__ info, int* comes, int* goes, int height, int n,
              int first, int joined) {
    factor<T, columns, R, B, threads, shared_bytes>(A, ipiv, info, comes, goes, height, n, first, joined);
}
