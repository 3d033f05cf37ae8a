// A small column-major matrix in the registers of the threads that share a problem.
#pragma once
#include "batched.cuh"

// W groups of P lanes share the columns and the rows, both cyclically: `at[c][r]` of a lane is the element in row
// r P + lane and column c W + group. A step for every column thus keeps all threads busy to the end. In registers there
// is room for a matrix of 128 x 128 doubles; shared memory would hold one only on the largest devices.
template <class T, int n, int P, int W>
struct Spread {
    static constexpr int R = (n + P - 1) / P;  // rows of a lane
    static constexpr int C = (n + W - 1) / W;  // columns of a group
    static constexpr int threads = P * W;      // of a problem
    static constexpr bool in_warp = threads <= kWarp;
    static constexpr int team = in_warp ? kWarp : threads;    // threads that meet,
    static constexpr int problems = team / threads;           // and problems that they have
    static constexpr int strip = W < 16 ? W : 16;             // columns that are stored at a time
    static constexpr int staged = in_warp ? n * n : 2 * strip * n;  // elements of a problem in shared memory meanwhile

    T at[C][R];

    static __device__ __forceinline__ int lane() { return threadIdx.x % P; }
    static __device__ __forceinline__ int group() { return threadIdx.x % threads / P; }
    static __device__ __forceinline__ int row(int r) { return r * P + lane(); }
    static __device__ __forceinline__ int column(int c) { return c * W + group(); }

    // Whether the warp of this thread has the group: a warp works for one of its groups as a whole.
    static __device__ __forceinline__ bool warp_has(int wanted) {
        return in_warp || group() * P / kWarp == wanted * P / kWarp;
    }

    // Reads a problem; beyond it, and where there is none, stands the identity.
    __device__ __forceinline__ void load(const T* from, bool exists) {
        const T* own = from + group() * n + lane();
#pragma unroll
        for (int c = 0; c < C; ++c)
#pragma unroll
            for (int r = 0; r < R; ++r) {
                const int i = row(r), j = column(c);
                at[c][r] = exists && i < n && j < n ? own[c * W * n + r * P] : T(i == j);
            }
    }

    // Reads the team's problems, `room` of which exist, from row-major matrices, those that share a warp through shared
    // memory. `staging` is that of `store`.
    __device__ __forceinline__ void load_turned(const T* from, int room, T* staging) {
        const int t = threadIdx.x % team, own = t / threads;
        const T* rows = from;
        if constexpr (in_warp) {
            for (int e = t; e < room * n * n; e += team) {
                const int i = e / n, j = e % n + skew(i);
                staging[i * n + (j < n ? j : j - n)] = from[e];
            }
            __syncwarp();
            rows = staging + own * n * n;
        }
#pragma unroll
        for (int c = 0; c < C; ++c)
#pragma unroll
            for (int r = 0; r < R; ++r) {
                const int i = row(r), j = column(c), place = j + (in_warp ? skew(own * n + i) : 0);
                at[c][r] = own < room && i < n && j < n ? rows[i * n + (place < n ? place : place - n)] : T(i == j);
            }
    }

    // Where row i begins: so that lanes read a column from different banks.
    static __device__ __forceinline__ int skew(int i) { return n % 2 == 0 ? i % n : 0; }

    // Writes the team's problems, `room` of which exist, from `to` on: through shared memory, so that accesses are of
    // whole lines. The rows go to those that `place` tells. `staging` has `staged` elements for each problem.
    __device__ __forceinline__ void store(T* to, int room, const int (&place)[R], T* staging) const {
        const int t = threadIdx.x % team;
        if constexpr (in_warp) {
#pragma unroll
            for (int c = 0; c < C; ++c)
#pragma unroll
                for (int r = 0; r < R; ++r)
                    if (row(r) < n && column(c) < n)
                        staging[t / threads * n * n + column(c) * n + place[r]] = at[c][r];
            __syncwarp();
            for (int e = t; e < room * n * n; e += team) to[e] = staging[e];
        } else {
int half = 0;
#pragma unroll
            for (int c = 0; c < C; ++c)
#pragma unroll 1
                for (int w = 0; w < W && c * W + w < n; w += strip) {  // through one half, then through the other
                    T* columns = staging + half * strip * n;
                    half ^= 1;
#pragma unroll
                    for (int r = 0; r < R; ++r)
                        if (row(r) < n && column(c) < n && group() / strip == w / strip)
                            columns[group() % strip * n + place[r]] = at[c][r];
                    __syncthreads();
                    const int first = c * W + w, count = (n - first < strip ? n - first : strip) * n;
                    for (int e = t; e < count; e += team) to[first * n + e] = columns[e];
                }
        }
    }
};
