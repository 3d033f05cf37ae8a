// Fourier transforms of a thread's registers: complex arithmetic, butterflies, twiddle factors.
#pragma once

__device__ __forceinline__ float2 operator+(float2 a, float2 b) { return make_float2(a.x + b.x, a.y + b.y); }
__device__ __forceinline__ float2 operator-(float2 a, float2 b) { return make_float2(a.x - b.x, a.y - b.y); }
__device__ __forceinline__ float2 operator*(float2 a, float2 b) {
    return make_float2(a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x);
}

__device__ constexpr int log2_of(int power) { return power > 1 ? 1 + log2_of(power / 2) : 0; }
__device__ constexpr int smaller(int a, int b) { return a < b ? a : b; }
__device__ constexpr int larger(int a, int b) { return a < b ? b : a; }

// An inverse transform is a forward one of numbers whose parts changed places, and so do those of its results:
// a choice of registers, which costs no instruction.
template <bool inverse>
__device__ __forceinline__ float2 swapped(float2 a) {
    return inverse ? make_float2(a.y, a.x) : a;
}

// cos(2 pi k / 32) for 0 <= k < 8
__device__ constexpr float cosine(int k) {
    return k == 0   ? 1.0f
           : k == 1 ? 0.980785280403230449f
           : k == 2 ? 0.923879532511286756f
           : k == 3 ? 0.831469612302545237f
           : k == 4 ? 0.707106781186547524f
           : k == 5 ? 0.555570233019602225f
           : k == 6 ? 0.382683432365089772f
                    : 0.195090322016128268f;
}

// a exp(-2 pi i k / 32), for k that the compiler knows, so that no branch is left
__device__ __forceinline__ float2 turned(float2 a, int k) {
    if (k & 16) a = make_float2(-a.x, -a.y);
    if (k & 8) a = make_float2(a.y, -a.x);
    return k & 7 ? a * make_float2(cosine(k & 7), -cosine(8 - (k & 7))) : a;
}

// u becomes its transform of length R, in order
template <int R>
__device__ __forceinline__ void transform(float2 (&u)[R]) {
    if constexpr (R == 2) {
        const float2 difference = u[0] - u[1];
        u[0] = u[0] + u[1];
        u[1] = difference;
    } else if constexpr (R == 4) {
        const float2 a = u[0] + u[2], b = u[0] - u[2], c = u[1] + u[3], d = turned(u[1] - u[3], 8);
        u[0] = a + c;
        u[1] = b + d;
        u[2] = a - c;
        u[3] = b - d;
    } else {
        constexpr int B = R / 4;
        float2 rows[4][B];
#pragma unroll
        for (int b = 0; b < B; ++b) {
            float2 column[4] = {u[b], u[B + b], u[2 * B + b], u[3 * B + b]};
            transform(column);
#pragma unroll
            for (int k = 0; k < 4; ++k) rows[k][b] = turned(column[k], b * k * (32 / R));
        }
#pragma unroll
        for (int k = 0; k < 4; ++k) {
            transform(rows[k]);
#pragma unroll
            for (int b = 0; b < B; ++b) u[k + 4 * b] = rows[k][b];
        }
    }
}

// u[q] becomes u[q] w^q. A power carries the rounding of its factors as often as it takes them, so radices from 16 on
// are given the fourth power as well: six roundings at most instead of fifteen.
template <int R>
__device__ __forceinline__ void twist(float2 (&u)[R], float2 w, float2 fourth) {
    float2 power[R];
    power[1] = w;
#pragma unroll
    for (int q = 2; q < R; ++q) {
        const int part = q <= 4 ? q / 2 : q % 4 ? q / 4 * 4 : q - 4;
        power[q] = R >= 16 && q == 4 ? fourth : power[part] * power[q - part];
    }
#pragma unroll
    for (int q = 1; q < R; ++q) u[q] = u[q] * power[q];
}

// The stage of radix R that follows stages whose radices have the product Ns
template <int P, int G, int Ns, int R>
__device__ __forceinline__ void butterflies(float2 (&v)[P], unsigned t) {
    const float half_turns = float(int(t % Ns)) * (-2.0f / (Ns * R));  // exact: a power of two
    float2 w, fourth;
    if (Ns > 1) sincospif(half_turns, &w.y, &w.x);
    if (Ns > 1 && R >= 16) sincospif(4 * half_turns, &fourth.y, &fourth.x);
#pragma unroll
    for (int i = 0; i < P / R; ++i) {
        float2 u[R];
#pragma unroll
        for (int q = 0; q < R; ++q) u[q] = v[i + q * (P / R)];
        // Butterfly t + i G. Where Ns > G, its angle is the thread's and a known multiple of G / (Ns R) turns.
        const int more = i % larger(Ns / G, 1) * (32 * G / (Ns * R));
        if (Ns > 1) twist(u, turned(w, more), R >= 16 ? turned(fourth, 4 * more) : w);
        transform(u);
#pragma unroll
        for (int q = 0; q < R; ++q) v[i + q * (P / R)] = u[q];
    }
}
