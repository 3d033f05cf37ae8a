// A small column-major matrix in the registers of the threads that share a problem.
#pragma once
#include "threads.cuh"

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
    static constexpr int staged = in_warp ? n * n : 2 * W * n;  // elements of a problem in shared memory while it is stored

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
#pragma unroll
            for (int c = 0; c < C; ++c) {  // W columns at a time, in one half and then in the other
                T* half = staging + c % 2 * W * n;
#pragma unroll
                for (int r = 0; r < R; ++r)
                    if (row(r) < n && column(c) < n) half[group() * n + place[r]] = at[c][r];
                __syncthreads();
                const int columns = n - c * W < W ? n - c * W : W;
                for (int e = t; e < columns * n; e += team) to[c * W * n + e] = half[e];
            }
        }
    }
};

constexpr __device__ int common_divisor(int a, int b) { return b == 0 ? a : common_divisor(b, a % b); }
