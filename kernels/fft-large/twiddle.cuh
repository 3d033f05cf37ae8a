// The factors between two passes of a long transform.
#pragma once
#include "butterflies.cuh"

// exp(-2 pi i turns / N) for 0 <= turns < N <= 2^23: float holds the angle exactly
template <int N>
__device__ __forceinline__ float2 root(unsigned turns) {
    float2 w;
    sincospif(float(int(turns)) * (-2.0f / N), &w.y, &w.x);
    return w;
}

// v[j] becomes v[j] exp(-2 pi i n (t + j G) / N) for n (t + j G) < N. Products of few exact factors, in an order that
// keeps few of them: j takes the factors of its binary digits, and of two digits next to each other one is a square.
template <int N, int G, int P>
__device__ __forceinline__ void twiddle(float2 (&v)[P], unsigned n, unsigned t) {
    float2 power[P], digit[6];
    power[0] = root<N>(n * t);
    v[0] = v[0] * power[0];
#pragma unroll
    for (int k = 0; 1 << k < P; ++k) digit[k] = k % 2 ? digit[k - 1] * digit[k - 1] : root<N>(n * (G << k));
#pragma unroll
    for (int j = 1; j < P; ++j) {
        const int lowest = j & -j;
        power[j] = power[j - lowest] * digit[log2_of(lowest)];
        v[j] = v[j] * power[j];
    }
}
