// Butterflies of any radix whose primes are small: transforms of a thread's registers.
#pragma once

#include "complex.cuh"

// The power of a prime that divides n, and the smallest odd prime that does; 1 where there is none
__device__ constexpr int part_of(int n, int prime) { return n % prime ? 1 : prime * part_of(n / prime, prime); }
__device__ constexpr int odd_prime_of(int n) {
    for (int p = 3; p <= n; p += 2)
        if (n % p == 0) return p;
    return 1;
}

// How a radix is split into A * B: apart into numbers without a common factor where it has several primes, which
// saves all twiddle factors; else by 4, or by its prime
__device__ constexpr int split_of(int R) {
    const int twos = part_of(R, 2), prime = odd_prime_of(R);
    if (twos == R) return R == 4 ? 2 : 4;
    if (twos > 1) return twos;
    return part_of(R, prime) == R ? prime : part_of(R, prime);
}
__device__ constexpr int common_factor(int a, int b) { return b ? common_factor(b, a % b) : a; }

// The multiple of a, below a b, that leaves 1 when divided by b
__device__ constexpr int neutral_multiple(int a, int b) {
    for (int k = a; k < a * b; k += a)
        if (k % b == 1 % b) return k;
    return 0;
}

// u becomes its transform of length R, an odd prime. Pairs of elements share their products.
template <int R, class T>
__device__ __forceinline__ void transform_prime(Complex<T> (&u)[R]) {
    constexpr Roots<R> roots;
    constexpr int H = R / 2;
    Complex<T> sums[H], differences[H], total = u[0];
#pragma unroll
    for (int k = 0; k < H; ++k) {
        sums[k] = u[k + 1] + u[R - 1 - k];
        differences[k] = u[k + 1] - u[R - 1 - k];
    }
#pragma unroll
    for (int m = 1; m <= H; ++m) {
        Complex<T> even = u[0], odd = scaled(differences[0], T(roots.sines[m]));
#pragma unroll
        for (int k = 1; k <= H; ++k) {
            const int at = k * m % R;
            even = even + scaled(sums[k - 1], T(roots.cosines[at]));
            if (k > 1) odd = odd + scaled(differences[k - 1], T(roots.sines[at]));
        }
        total = total + sums[m - 1];
        u[m] = {even.x + odd.y, even.y - odd.x};
        u[R - m] = {even.x - odd.y, even.y + odd.x};
    }
    u[0] = total;
}

// u becomes its transform of length R, in order
template <int R, class T>
__device__ __forceinline__ void transform(Complex<T> (&u)[R]) {
    if constexpr (R == 2) {
        const Complex<T> difference = u[0] - u[1];
        u[0] = u[0] + u[1];
        u[1] = difference;
    } else if constexpr (odd_prime_of(R) == R) {
        transform_prime(u);
    } else if constexpr (R > 1) {
        constexpr int A = split_of(R), B = R / A;
        constexpr bool apart = common_factor(A, B) == 1;
        constexpr int to_a = neutral_multiple(B, A), to_b = neutral_multiple(A, B);
        Complex<T> rows[A][B];
#pragma unroll
        for (int b = 0; b < B; ++b) {
            Complex<T> column[A];
#pragma unroll
            for (int a = 0; a < A; ++a) column[a] = u[apart ? (a * B + b * A) % R : a * B + b];
            transform<A>(column);
#pragma unroll
            for (int k = 0; k < A; ++k) rows[k][b] = apart ? column[k] : turned<R>(column[k], b * k);
        }
#pragma unroll
        for (int k = 0; k < A; ++k) {
            transform<B>(rows[k]);
#pragma unroll
            for (int b = 0; b < B; ++b) u[apart ? (k * to_a + b * to_b) % R : k + A * b] = rows[k][b];
        }
    }
}

// u[q] becomes u[q] w^q. A power carries the rounding of its factors as often as it takes them, so radices above 8
// are given the fourth power as well.
template <int R, class T>
__device__ __forceinline__ void twist(Complex<T> (&u)[R], Complex<T> w, Complex<T> fourth) {
    Complex<T> power[R];
    power[1] = w;
#pragma unroll
    for (int q = 1; q < R; ++q) {
        const int part = q <= 4 ? q / 2 : q % 4 ? q / 4 * 4 : q - 4;
        if (q > 1) power[q] = R > 8 && q == 4 ? fourth : power[part] * power[q - part];
        u[q] = u[q] * power[q];
    }
}
