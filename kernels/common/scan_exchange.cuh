// How the threads of a scan tell each other their totals, whatever the circuit.
//
//     exchange.publish(below, own, told);  // this thread holds below[c] + own[c] of chunk c; told: others will ask
//     exchange.total_of(c, rank);          // what the thread of that rank has published
//
// All threads that share a problem publish and ask together.
#pragma once
#include "threads.cuh"

// Totals of C chunks travel by shuffles among W lanes.
template <class T, int W, int C>
struct ByShuffle {
    __device__ __forceinline__ void publish(const T (&below)[C], const T (&own)[C], bool) {
#pragma unroll
        for (int c = 0; c < C; ++c) totals[c] = below[c] + own[c];
    }
    __device__ __forceinline__ T total_of(int c, int rank) const {
        return __shfl_sync(kAllLanes, totals[c], rank, W);
    }
    T totals[C];
};

// Totals travel through shared memory among the G threads of a problem, in two places in turn so that one barrier
// is enough: who writes a place again has passed the barrier of the publication between.
template <class T, int G, int L, int C>
struct ByShared {
    __device__ __forceinline__ void publish(const T (&below)[C], const T (&own)[C], bool told) {
        turn ^= 1;
        if (told) {
#pragma unroll
            for (int c = 0; c < C; ++c) places[turn][c * L + threadIdx.x] = below[c] + own[c];
        }
        meet<G>();
    }
    __device__ __forceinline__ T total_of(int c, int rank) const {
        return places[turn][c * L + threadIdx.x / G * G + rank];
    }
    T (*places)[C * L];
    int turn = 0;
};
