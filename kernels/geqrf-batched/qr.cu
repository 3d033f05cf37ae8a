// QR factorisations of small matrices by Householder reflections, A = Q R in place, as LAPACK's geqrf.
//
// A step for every column: the group that has the column makes the reflection and publishes its vector, all meet, and
// every group applies it to its columns: a product with the vector for each, summed over the lanes. One barrier a step.
#include "spread.cuh"
#include "vectors.cuh"

__device__ __forceinline__ float inverse_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double inverse_root(double x) { return rsqrt(x); }
__device__ __forceinline__ float magnitude(float x) { return fabsf(x); }
__device__ __forceinline__ double magnitude(double x) { return fabs(x); }

// Sums of squares in between lose nothing that matters to underflow, and do not overflow. What is divided by `least` does
// not overflow.
template <class T>
struct Range;
template <>
struct Range<float> {
    static constexpr float low = 0x1p-80f, high = 0x1p120f, least = 0x1p-126f;
};
template <>
struct Range<double> {
    static constexpr double low = 0x1p-940, high = 0x1p1000, least = 0x1p-1022;
};

template <class T, int n, int P, int W>
struct alignas(16) Scratch {
    alignas(16) T vectors[2][Spread<T, n, P, W>::R * P];  // of odd and even steps
    T tau[n];
};

// Sum over the P lanes of a group, or the largest.
template <int P, class T>
__device__ __forceinline__ T summed(T value) {
#pragma unroll
    for (int d = P / 2; d > 0; d /= 2) value += __shfl_xor_sync(kAllLanes, value, d, P);
    return value;
}
template <int P, class T>
__device__ __forceinline__ T largest(T value) {
#pragma unroll
    for (int d = P / 2; d > 0; d /= 2) {
        const T other = __shfl_xor_sync(kAllLanes, value, d, P);
        value = other > value ? other : value;
    }
    return value;
}

// I - tau v v' takes a column to beta in row k and zeros below; v is 1 in row k and `scale` times the column below.
template <class T>
struct Reflection {
    T beta, tau, scale;
};

// Of alpha in row k and a sum of squares below it that is not zero.
template <class T>
__device__ __forceinline__ Reflection<T> reflection(T alpha, T squares) {
    const T total = squares + alpha * alpha, inverse = inverse_root(total), norm = total * inverse;
    const T beta = alpha >= T(0) ? -norm : norm;
    return {beta, T(1) + magnitude(alpha) * inverse, T(1) / (alpha - beta)};
}

// The reflection of step k for its column, of which a lane has the elements from register `first` on; those from `below`
// on lie below row k. Called by whole warps; of groups that have another column the answer means nothing. What is below
// row k may be scaled: it is only a direction.
template <int P, class T, int R>
__device__ __forceinline__ Reflection<T> make_reflection(T (&column)[R], int k, int first, int below, bool mine) {
    const int lane = threadIdx.x % P;
    T squares = 0, alpha = 0;
#pragma unroll
    for (int r = 0; r < R; ++r) {
        if (r < first) continue;
        const int row = r * P + lane;
        if (r >= below || row > k) squares += column[r] * column[r];
        if (r < below && row == k) alpha = column[r];
    }
    squares = summed<P>(squares);
    alpha = __shfl_sync(kAllLanes, alpha, k % P, P);
    Reflection<T> made = reflection(alpha, squares);
    const bool rare = squares < Range<T>::low || squares + alpha * alpha > Range<T>::high;
    if (__any_sync(kAllLanes, rare)) {  // the same of a column whose largest element is 1
        T most = 0;
#pragma unroll
        for (int r = 0; r < R; ++r)
            if (r >= first && (r >= below || r * P + lane > k) && magnitude(column[r]) > most) most = magnitude(column[r]);
        most = largest<P>(most);
        const bool zero = most == T(0) && squares == T(0);  // not of NaN
        most = magnitude(alpha) > most ? magnitude(alpha) : most;
        most = most > Range<T>::least ? most : Range<T>::least;
        T scaled = 0;
#pragma unroll
        for (int r = 0; r < R; ++r) {
            if (r < first || !(r >= below || r * P + lane > k)) continue;
            const T element = column[r] / most;
            scaled += element * element;
            if (rare && mine) column[r] = element;
        }
        const Reflection<T> unit = reflection(alpha / most, summed<P>(scaled));
        if (rare) made = {unit.beta * most, unit.tau, unit.scale};
        if (zero) made = {alpha, T(0), T(0)};
    }
    return made;
}

// Problems are n x n, column-major, one behind the other.
//   P       lanes that share the rows
//   W       groups that share the columns
//   G       problems of a block; 1 where a problem has several warps
//   blocks  that a multiprocessor is to hold at least, which bounds the registers
template <class T, int n, int P, int W, int G, int blocks>
__global__ void __launch_bounds__(P* W* G, blocks)
    geqrf_batched(T* __restrict__ A, T* __restrict__ tau, int batch) {
    using Here = Spread<T, n, P, W>;
    constexpr int R = Here::R, C = Here::C, E = common_divisor(R, 16 / sizeof(T));
    __shared__ Scratch<T, n, P, W> scratch[G];
    __shared__ T staging[G * Here::staged];

    const int t = threadIdx.x % Here::threads, lane = Here::lane(), group = Here::group();
    const int problem = blockIdx.x * G + threadIdx.x / Here::threads;
    Scratch<T, n, P, W>& own = scratch[threadIdx.x / Here::threads];
    Here matrix;
    matrix.load(A + size_t(problem) * n * n, problem < batch);
    auto& a = matrix.at;
#pragma unroll
    for (int c = 0; c < C; ++c) {
        const int steps = n - c * W < W ? n - c * W : W;
        const int first = c * W / P, below = (c * W + W + P - 1) / P;  // registers before hold rows above k, from there below
#pragma unroll 1
        for (int w = 0; w < steps; ++w) {
            const int k = c * W + w;
            T v[R];
            if (Here::warp_has(w)) {
                const bool mine = group == w;
                const Reflection<T> made = make_reflection<P>(a[c], k, first, below, mine);
#pragma unroll
                for (int r = 0; r < R; ++r) {
                    if (r < first) {
                        v[r] = T(0);
                        continue;
                    }
                    const int row = Here::row(r);
                    const bool under = r >= below || row > k;
                    const T element = a[c][r] * made.scale;
                    v[r] = under ? element : row == k ? T(1) : T(0);
                    a[c][r] = !mine ? a[c][r] : under ? element : row == k ? made.beta : a[c][r];
                }
                if (mine) {
                    store<R, E>(own.vectors[k % 2] + lane * R, E, R, v);
                    if (lane == 0) own.tau[k] = made.tau;
                }
            }
            meet<Here::threads>();
            const T* vector = own.vectors[k % 2] + lane * R;
#pragma unroll
            for (int r = 0; r < R; r += E) {
                if (r + E <= first) continue;
                const auto pack = *reinterpret_cast<const Pack<T, E>*>(vector + r);
#pragma unroll
                for (int e = 0; e < E; ++e) v[r + e] = pack.at[e];
            }
            const T factor = own.tau[k];
            T product[C];
#pragma unroll
            for (int j = 0; j < C; ++j) {
                if (j < c) continue;
                product[j] = 0;
#pragma unroll
                for (int r = 0; r < R; ++r)
                    if (r >= first) product[j] += v[r] * a[j][r];
                product[j] = summed<P>(product[j]) * factor;
            }
            if (group <= w) product[c] = T(0);  // the column is done
#pragma unroll
            for (int j = 0; j < C; ++j)
#pragma unroll
                for (int r = 0; r < R; ++r)
                    if (j >= c && r >= first) a[j][r] -= product[j] * v[r];
        }
    }
    int place[R];
#pragma unroll
    for (int r = 0; r < R; ++r) place[r] = Here::row(r);
    const int first = blockIdx.x * G + threadIdx.x / Here::team * Here::problems;
    const int room = batch - first < Here::problems ? batch - first : Here::problems;
    matrix.store(A + size_t(first) * n * n, room, place,
                 staging + threadIdx.x / Here::team * Here::problems * Here::staged);
    if (problem >= batch) return;
    for (int i = t; i < n; i += Here::threads) tau[size_t(problem) * n + i] = own.tau[i];
}
