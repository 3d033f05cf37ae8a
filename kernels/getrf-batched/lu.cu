// LU factorisations of small matrices with partial pivoting, P A = L U in place, as LAPACK's getrf.
//
// A step for every column: the group that has the column finds the pivot and publishes the multipliers, all meet, the
// lanes that have the pivot row pass it on within their groups, and every thread updates its elements. One barrier a
// step. Rows never move: each goes to its place when the matrix is stored.
#include "alone.cuh"
#include "spread.cuh"

enum class Exchange { shared, shuffle, none };  // how the pivot row reaches the lanes of a group; none: it has one

template <class T, int n, int P, int W>
struct alignas(16) Scratch {
    static constexpr int width = 16 / sizeof(T);
    alignas(16) T multipliers[2][Spread<T, n, P, W>::R * P];                           // of odd and even steps
    alignas(16) T pivot_row[W][(Spread<T, n, P, W>::C + width - 1) / width * width];
    int row[2];        // that is the pivot row
    int info;          // number of the first pivot that is zero, from 1
    int exchanged[n];  // where LAPACK has the pivot row of a step before it exchanges rows: ipiv from 0
    int place[n];      // of a row in the result: the step whose pivot row it is
};

// Where LAPACK has a row, that is no pivot row yet, before step k. Exchanges only move it down, so that this ends.
__device__ __forceinline__ int position(const int* exchanged, int row, int k) {
    for (int next = row; row < k; row = next) {
        next = exchanged[row];
        if (next <= row) break;
    }
    return row;
}

// The largest element of a column among the rows that are not done; of equal ones LAPACK's first. Called by whole warps.
//   mine     this lane's group has the column; others get an answer that means nothing
//   before   pivot row of step k - 1, whose exchange another thread is noting down at the moment
template <int n, int P, class T, int R>
__device__ __forceinline__ Pivot<T> find_pivot(const T (&column)[R], int done, bool mine, int k, int before,
                                               const int* exchanged) {
    const int lane = threadIdx.x % P, shift = threadIdx.x % kWarp / P * P;
    constexpr unsigned lanes = P == kWarp ? kAllLanes : (1u << P % kWarp) - 1;
    decltype(magnitude(T())) best = -1;
    T value = 1;
    int at = 0;
    bool twice = false;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const auto key = done >> r & 1 ? decltype(best)(-1) : magnitude(column[r]);
        twice = key == best || (key < best && twice);
        const bool larger = key > best;
        best = larger ? key : best;
        value = larger ? column[r] : value;
        at = larger ? r : at;
    }
    T inverse = T(1) / value;  // of every lane, while the shuffles are on their way
    auto top = best;
#pragma unroll
    for (int d = P / 2; d > 0; d /= 2) {
        const auto other = __shfl_xor_sync(kAllLanes, top, d, P);
        if (other > top) top = other;
    }
    const unsigned winners = __ballot_sync(kAllLanes, best == top) >> shift & lanes;
    int winner = __ffs(int(winners)) - 1;
    const bool several = (winners & (winners - 1)) != 0 || (R > 1 && best == top && twice);
    if (__any_sync(kAllLanes, mine && several)) {
        int first = n;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            if (done >> r & 1 || magnitude(column[r]) != top) continue;
            int here = position(exchanged, r * P + lane, k - 1);
            if (here == k - 1) here = position(exchanged, before, k - 1);
            if (here < first) first = here, value = column[r], at = r;
        }
        inverse = T(1) / value;
        int least = first;
#pragma unroll
        for (int d = P / 2; d > 0; d /= 2) {
            const int other = __shfl_xor_sync(kAllLanes, least, d, P);
            if (other < least) least = other;
        }
        winner = __ffs(int(__ballot_sync(kAllLanes, first == least) >> shift & lanes)) - 1;
    }
    Pivot<T> found;
    found.row = __shfl_sync(kAllLanes, at * P + lane, winner, P);
    found.inverse = __shfl_sync(kAllLanes, inverse, winner, P);
    found.value = T(1);
    found.divides = __any_sync(kAllLanes, !is_finite(found.inverse));
    if (found.divides) found.value = __shfl_sync(kAllLanes, value, winner, P);
    return found;
}

// Factors the problem of a group of threads.
template <class T, int n, int P, int W, int G, Exchange exchange>
__device__ __forceinline__ void factor(T* __restrict__ A, int* __restrict__ ipiv, int* __restrict__ info, int batch,
                                       int first_row) {
    using Here = Spread<T, n, P, W>;
    constexpr int R = Here::R, C = Here::C, width = 16 / sizeof(T), E = common_divisor(R, width);
    __shared__ Scratch<T, n, P, W> scratch[G];
    __shared__ T staging[G * Here::staged];

    const int t = threadIdx.x % Here::threads, lane = Here::lane(), group = Here::group();
    const int problem = blockIdx.x * G + threadIdx.x / Here::threads;
    Scratch<T, n, P, W>& own = scratch[threadIdx.x / Here::threads];
    Here matrix;
    matrix.load(A + size_t(problem) * n * n, problem < batch);
    auto& a = matrix.at;

    int done = 0;  // bits of the rows that have been pivot rows, or do not exist
#pragma unroll
    for (int r = 0; r < R; ++r)
        if (Here::row(r) >= n) done |= 1 << r;
    if (t == 0) own.info = 0;
    int before = 0;
    T l[R];
#pragma unroll
    for (int c = 0; c < C; ++c) {
        const int steps = n - c * W < W ? n - c * W : W;
#pragma unroll 1
        for (int w = 0; w < steps; ++w) {
            const int k = c * W + w;
            const bool mine = group == w;
            int pivot_row = 0;
            if (Here::warp_has(w)) {
                const Pivot<T> pivot = find_pivot<n, P>(a[c], done, mine, k, before, own.exchanged);
                pivot_row = pivot.row;
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    const bool below = !(done >> r & 1) && Here::row(r) != pivot.row;
                    l[r] = below ? a[c][r] * pivot.inverse : T(0);
                    if (pivot.divides && below) l[r] = multiplier(a[c][r], pivot);
                    a[c][r] = mine && below ? l[r] : a[c][r];
                }
                if (mine) {
                    if constexpr (W > 1) store<R, E>(own.multipliers[k % 2] + lane * R, E, R, l);
                    if (lane == 0) own.row[k % 2] = pivot.row;
                    if (pivot.divides && lane == 0 && pivot.value == T(0) && own.info == 0) own.info = k + 1;
                }
            }
            meet<Here::threads>();
            if constexpr (W > 1) {
                pivot_row = own.row[k % 2];
                load<R, E>(own.multipliers[k % 2] + lane * R, E, R, T(0), l);
            }
            const int from = pivot_row % P, which = pivot_row / P;
            T u[C];
            if constexpr (exchange == Exchange::shared) {
                T* passed = own.pivot_row[group];
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    if (Here::row(r) != pivot_row) continue;
#pragma unroll
                    for (int j = 0; j < C; j += width) {
                        if (j + width <= c) continue;
                        Pack<T, width> pack;
#pragma unroll
                        for (int e = 0; e < width; ++e) pack.at[e] = j + e < C ? a[j + e < C ? j + e : 0][r] : T(0);
                        *reinterpret_cast<Pack<T, width>*>(passed + j) = pack;
                    }
                }
                __syncwarp();
#pragma unroll
                for (int j = 0; j < C; j += width) {
                    if (j + width <= c) continue;
                    const auto pack = *reinterpret_cast<const Pack<T, width>*>(passed + j);
#pragma unroll
                    for (int e = 0; e < width; ++e)
                        if (j + e < C) u[j + e] = pack.at[e];
                }
            } else {
#pragma unroll
                for (int j = 0; j < C; ++j) {
                    if (j < c) continue;
                    T element = a[j][0];
#pragma unroll
                    for (int r = 1; r < R; ++r) element = r == which ? a[j][r] : element;
                    u[j] = __shfl_sync(kAllLanes, element, from, P);
                }
            }
            if (group <= w) u[c] = T(0);  // the column is done
            if (lane == from) done |= 1 << which;
#pragma unroll
            for (int j = 0; j < C; ++j) {
                if (j < c) continue;
#pragma unroll
                for (int r = 0; r < R; ++r) a[j][r] -= l[r] * u[j];
            }
            if (mine && lane == 0) {
                own.exchanged[k] = position(own.exchanged, pivot_row, k);
                own.place[pivot_row] = k;
            }
            before = pivot_row;
        }
    }
    meet<Here::threads>();
    int place[R];
#pragma unroll
    for (int r = 0; r < R; ++r) place[r] = Here::row(r) < n ? own.place[Here::row(r)] : 0;
    const int first = blockIdx.x * G + threadIdx.x / Here::team * Here::problems;
    const int room = batch - first < Here::problems ? batch - first : Here::problems;
    matrix.store(A + size_t(first) * n * n, room, place,
                 staging + threadIdx.x / Here::team * Here::problems * Here::staged);
    if (problem >= batch) return;
    for (int i = t; i < n; i += Here::threads) ipiv[size_t(problem) * n + i] = own.exchanged[i] + first_row;
    if (t == 0) info[problem] = own.info;
}

// Problems are n x n, column-major, one behind the other.
//   P       lanes that share the rows
//   W       groups that share the columns
//   G       problems of a block; 1 where a problem has several warps
//   staged  matrices go through shared memory
//   blocks  that a multiprocessor is to hold at least, which bounds the registers
template <class T, int n, int P, int W, int G, Exchange exchange, bool staged, int blocks>
__global__ void __launch_bounds__(P* W* G, blocks)
    getrf_batched(T* __restrict__ A, int* __restrict__ ipiv, int* __restrict__ info, int batch, int first_row) {
    if constexpr (exchange == Exchange::none)
        factor_each<T, n, G, staged>(A, ipiv, info, batch, first_row);
    else
        factor<T, n, P, W, G, exchange>(A, ipiv, info, batch, first_row);
}
