// LU factorisations of small matrices with partial pivoting, P A = L U in place, as LAPACK's getrf.
//
// A step for every column: the group that has the column finds the pivot and publishes the multipliers, all meet, the
// lanes that have the pivot row pass it on within their groups, and every thread updates its elements. One barrier a
// step. Rows never move: each goes to its place when the matrix is stored. NaN and infinities spread to rows that are done,
// too, and a pivot of NaN may be another row than LAPACK's.
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
    int place[n];      // where LAPACK, which exchanges rows, has a row
    int exchanged[n];  // of the steps that are done, ipiv from 0; behind them the row that LAPACK has in a place
};

// The largest element of a column among the rows that are not done; of equal ones LAPACK's first. Called by whole warps.
//   alone  the warp has no other problem
//   mine   this lane's group has the column; others get an answer that means nothing
//   place  where LAPACK has a row
template <int P, bool alone, class T, int R>
__device__ __forceinline__ Pivot<T> find_pivot(const T (&column)[R], int done, bool mine, const int* place) {
    const int lane = threadIdx.x % P, shift = threadIdx.x % kWarp / P * P;
    constexpr unsigned lanes = P == kWarp ? kAllLanes : (1u << P % kWarp) - 1;
    int keys[R], top = -1, at = 0, equal = 0;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        keys[r] = done >> r & 1 ? -1 : leading(column[r]);
        top = keys[r] > top ? keys[r] : top;
    }
    top = alone ? largest_of<kWarp>(mine ? top : -1) : largest_of<P>(top);
    T value = 1;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        const bool here = keys[r] == top;
        equal += here;
        at = here ? r : at;
        value = here ? column[r] : value;
    }
    const unsigned winners = __ballot_sync(kAllLanes, equal > 0) >> shift & lanes;
    int winner = __ffs(int(winners)) - 1;
    const bool several = (winners & (winners - 1)) != 0 || equal > 1;
    if (__any_sync(kAllLanes, mine && several)) {
        auto largest = magnitude(T(0));
        int own = kNowhere;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            if (done >> r & 1) continue;
            const auto key = magnitude(column[r]);
            const int here = place[r * P + lane];
            if (own != kNowhere && (key < largest || (key == largest && here > own))) continue;
            largest = key, own = here, value = column[r], at = r;
        }
        if (own == kNowhere) largest = -1;
        __syncwarp();  // the places that were read change now
        int first = own;
#pragma unroll
        for (int d = P / 2; d > 0; d /= 2) {
            const auto other = __shfl_xor_sync(kAllLanes, largest, d, P);
            const int there = __shfl_xor_sync(kAllLanes, first, d, P);
            if (other > largest || (other == largest && there < first)) largest = other, first = there;
        }
        winner = __ffs(int(__ballot_sync(kAllLanes, first == own) >> shift & lanes)) - 1;
    }
    const T inverse = T(1) / value;
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
__device__ __forceinline__ void factor(T* A, int* __restrict__ ipiv, int* __restrict__ info, int batch, int first_row,
                                       const T* from, bool turned) {
    using Here = Spread<T, n, P, W>;
    constexpr int R = Here::R, C = Here::C, width = 16 / sizeof(T), E = common_divisor(R, width);
    __shared__ Scratch<T, n, P, W> scratch[G];
    __shared__ T staging[G * Here::staged];

    const int t = threadIdx.x % Here::threads, lane = Here::lane(), group = Here::group();
    const int problem = blockIdx.x * G + threadIdx.x / Here::threads;
    Scratch<T, n, P, W>& own = scratch[threadIdx.x / Here::threads];
    Here matrix;
    const int first = blockIdx.x * G + threadIdx.x / Here::team * Here::problems;
    const int room = batch - first < Here::problems ? batch - first : Here::problems;
    T* const team_staging = staging + threadIdx.x / Here::team * Here::problems * Here::staged;
    if (turned)
        matrix.load_turned(from + size_t(first) * n * n, room, team_staging);
    else
        matrix.load(from + size_t(problem) * n * n, problem < batch);
    auto& a = matrix.at;

    int done = 0;  // bits of the rows that have been pivot rows, or do not exist
#pragma unroll
    for (int r = 0; r < R; ++r)
        if (Here::row(r) >= n) done |= 1 << r;
    if (t == 0) own.info = 0;
    for (int i = t; i < n; i += Here::threads) own.place[i] = own.exchanged[i] = i;
    meet<Here::threads>();
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
                const Pivot<T> pivot = find_pivot<P, kWarp <= Here::threads>(a[c], done, mine, own.place);
                pivot_row = pivot.row;
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    const bool below = !(done >> r & 1) && Here::row(r) != pivot.row;
                    l[r] = below ? a[c][r] * pivot.inverse : T(0);
                }
                if (pivot.divides) {
#pragma unroll
                    for (int r = 0; r < R; ++r)
                        if (!(done >> r & 1) && Here::row(r) != pivot.row) l[r] = multiplier(a[c][r], pivot);
                }
#pragma unroll
                for (int r = 0; r < R; ++r)
                    if (mine && !(done >> r & 1) && Here::row(r) != pivot.row) a[c][r] = l[r];
                if (mine) {
                    if constexpr (W > 1) store<R, E>(own.multipliers[k % 2] + lane * R, E, R, l);
                    if (lane == 0) {
                        own.row[k % 2] = pivot.row;
                        if (pivot.divides && pivot.value == T(0) && own.info == 0) own.info = k + 1;
                        const int from = own.place[pivot.row], moved = own.exchanged[k];
                        own.place[moved] = own.exchanged[k] = from;
                        own.place[pivot.row] = k;
                        if (from != k) own.exchanged[from] = moved;
                    }
                }
            }
            meet<Here::threads>();
            if constexpr (W > 1) {
                pivot_row = own.row[k % 2];
                load<R, E>(own.multipliers[k % 2] + lane * R, E, R, T(0), l);
            }
            const int owner = pivot_row % P, which = pivot_row / P;
            T u[C + width];
            if constexpr (exchange == Exchange::shared) {
                T* passed = own.pivot_row[group];
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    if (Here::row(r) != pivot_row) continue;
#pragma unroll
                    for (int j = c / width * width; j < C; j += width) {
                        Pack<T, width> pack;
#pragma unroll
                        for (int e = 0; e < width; ++e) pack.at[e] = j + e < C ? a[j + e < C ? j + e : 0][r] : T(0);
                        *reinterpret_cast<Pack<T, width>*>(passed + j) = pack;
                    }
                }
                __syncwarp();
#pragma unroll
                for (int j = c / width * width; j < C; j += width) {
                    const auto pack = *reinterpret_cast<const Pack<T, width>*>(passed + j);
#pragma unroll
                    for (int e = 0; e < width; ++e) u[j + e] = pack.at[e];
                }
            } else {
#pragma unroll
                for (int j = c; j < C; ++j) {
                    T element = a[j][0];
#pragma unroll
                    for (int r = 1; r < R; ++r) element = r == which ? a[j][r] : element;
                    u[j] = __shfl_sync(kAllLanes, element, owner, P);
                }
            }
            if (group <= w) u[c] = T(0);  // the column is done
            if (lane == owner) done |= 1 << which;
#pragma unroll
            for (int j = c; j < C; ++j)
#pragma unroll
                for (int r = 0; r < R; ++r) a[j][r] -= l[r] * u[j];
        }
    }
    int place[R];
#pragma unroll
    for (int r = 0; r < R; ++r) place[r] = Here::row(r) < n ? own.place[Here::row(r)] : 0;
    matrix.store(A + size_t(first) * n * n, room, place, team_staging);
    if (problem >= batch) return;
    for (int i = t; i < n; i += Here::threads) ipiv[size_t(problem) * n + i] = own.exchanged[i] + first_row;
    if (t == 0) info[problem] = own.info;
}

// Problems are n x n, column-major, one behind the other.
//   P       lanes that share the rows
//   W       groups that share the columns
//   G       problems of a block; 1 where a problem has several warps
//   from    address of what is read, row-major if `turned`; 0: A
//   staged  matrices go through shared memory
//   blocks  that a multiprocessor is to hold at least, which bounds the registers
template <class T, int n, int P, int W, int G, Exchange exchange, bool staged, int blocks>
__global__ void __launch_bounds__(P* W* G, blocks)
    getrf_batched(T* A, int* __restrict__ ipiv, int* __restrict__ info, int batch, int first_row,
                  size_t from, bool turned) {
    const T* read = from ? reinterpret_cast<const T*>(from) : A;
    if constexpr (exchange == Exchange::none)
        factor_each<T, n, G, staged>(A, ipiv, info, batch, first_row, read, turned);
    else
        factor<T, n, P, W, G, exchange>(A, ipiv, info, batch, first_row, read, turned);
}
