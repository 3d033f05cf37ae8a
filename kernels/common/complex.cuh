// Complex numbers of either precision, and roots of unity: constants, and of indices known at run time.
#pragma once

template <class T>
struct alignas(2 * sizeof(T)) Complex {
    T x, y;
};

template <class T>
__device__ __forceinline__ Complex<T> operator+(Complex<T> a, Complex<T> b) {
    return {a.x + b.x, a.y + b.y};
}
template <class T>
__device__ __forceinline__ Complex<T> operator-(Complex<T> a, Complex<T> b) {
    return {a.x - b.x, a.y - b.y};
}
template <class T>
__device__ __forceinline__ Complex<T> operator*(Complex<T> a, Complex<T> b) {
    return {a.x * b.x - a.y * b.y, a.x * b.y + a.y * b.x};
}
template <class T>
__device__ __forceinline__ Complex<T> scaled(Complex<T> a, T factor) {
    return {a.x * factor, a.y * factor};
}
template <class T>
__device__ __forceinline__ Complex<T> conjugate(Complex<T> a) {
    return {a.x, -a.y};
}

// An inverse transform is a forward one of numbers whose parts changed places, and so do those of its results.
template <bool inverse, class T>
__device__ __forceinline__ Complex<T> swapped(Complex<T> a) {
    return inverse ? Complex<T>{a.y, a.x} : a;
}

// ---- roots that the compiler knows ---------------------------------------------------------------------------

// x as a number of type T, and what that lacks
template <class T>
struct TwoParts {
    T high, low;
};

constexpr TwoParts<double> kPi = {3.141592653589793116, 1.2246467991473532e-16};

// pi k / n, n < 2^18
template <class T>
__device__ constexpr TwoParts<T> part_of_pi(int k, int n) {
    const double whole = k * kPi.high / n, head = float(whole);
    // head * n is exact, and so is the rest of the division by it; k is a power of two
    const double lacks = ((k * kPi.high - head * n) - (whole - head) * n + k * kPi.low) / n;
    return sizeof(T) == 4 ? TwoParts<T>{T(whole), T(whole - head + lacks)} : TwoParts<T>{T(whole), T(lacks)};
}

// 1 / k!, with the signs of the series of cos (k even) and of sin
__device__ constexpr double term(int k) { return k == 0 ? 1 : term(k - 1) / (k % 2 ? k : -k); }

// cos(2 pi k / n), 0 <= k < n < 2^17: by way of the eighth of a turn that holds the angle, by Taylor's series
__device__ constexpr double cosine(int k, int n) {
    const int quarter = 4 * k / n, rest = 4 * k % n;  // of a quarter turn: rest / n
    const bool far = 2 * rest > n, odd = quarter % 2 == 1, by_sine = odd != far;
    const TwoParts<double> step = part_of_pi<double>(1, 2 * n);
    const int steps = far ? n - rest : rest;
    const double head = float(step.high), angle = step.high * steps, square = angle * angle;
    const double lacks = (head * steps - angle) + (step.high - head) * steps + step.low * steps;
    double even = term(20), uneven = term(19);
    for (int i = 18; i > 2; i -= 2) {
        even = even * square + term(i);
        uneven = uneven * square + term(i - 1);
    }
    even = (even * square + term(2)) * square;
    const double size = by_sine ? angle + (uneven * square * angle + (1 + even) * lacks) : 1 + (even - angle * lacks);
    return quarter == 1 || quarter == 2 ? -size : size;
}
__device__ constexpr double sine(int k, int n) { return cosine((4 * k + 3 * n) % (4 * n), 4 * n); }

// cos and sin of all multiples of 1 / n turn
template <int n>
struct Roots {
    double cosines[n], sines[n];
    __device__ constexpr Roots() : cosines(), sines() {
        for (int k = 0; k < n; ++k) {
            cosines[k] = cosine(k, n);
            sines[k] = sine(k, n);
        }
    }
};

// a exp(-2 pi i k / n), for k that the compiler knows, so that no branch is left
template <int n, class T>
__device__ __forceinline__ Complex<T> turned(Complex<T> a, int k) {
    constexpr Roots<n> roots;
    k %= n;
    if (k == 0) return a;
    if (4 * k == n) return {a.y, -a.x};
    if (2 * k == n) return {-a.x, -a.y};
    if (4 * k == 3 * n) return {-a.y, a.x};
    return a * Complex<T>{T(roots.cosines[k]), T(-roots.sines[k])};
}

// exp(-2 pi i k / n), 0 <= k < n
template <class T>
__device__ constexpr Complex<T> constant_root(int k, int n) {
    return {T(cosine(k, n)), T(-sine(k, n))};
}

// ---- roots of indices known at run time ----------------------------------------------------------------------

__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// cos and sin of an angle up to pi / 4 and what it lacks, by Taylor's series; rounded when the largest term is added
template <class T>
__device__ __forceinline__ Complex<T> unit(T angle, T lacks) {
    constexpr int terms = sizeof(T) == 4 ? 5 : 8;
    constexpr struct Terms {
        T at[2 * terms + 1];
        __device__ constexpr Terms() : at() {
            for (int k = 0; k <= 2 * terms; ++k) at[k] = T(term(k));
        }
    } series;
    const T square = angle * angle;
    T cosine = series.at[2 * terms], sine = series.at[2 * terms - 1];
#pragma unroll
    for (int k = terms - 1; k > 0; --k) {
        cosine = multiply_add(cosine, square, series.at[2 * k]);
        if (k > 1) sine = multiply_add(sine, square, series.at[2 * k - 1]);
    }
    cosine = T(1) + multiply_add(cosine, square, -angle * lacks);
    sine = angle + multiply_add(sine, angle * square, cosine * lacks);
    return {cosine, sine};
}

// cos and sin of an angle from -2 pi / parts to 0, in two parts: within an eighth of a turn as it is, below turned by
// a quarter or by a half
template <int parts, class T>
__device__ __forceinline__ Complex<T> unit_within(T angle, T lacks) {
    if constexpr (parts >= 8) {
        return unit(angle, lacks);
    } else {
        constexpr int quarters = parts >= 3 ? 1 : 2;
        constexpr TwoParts<T> turn = part_of_pi<T>(quarters, 2);
        constexpr T bound = T((1 - 2 * quarters) * kPi.high / 4);
        const bool below = angle < bound;
        const Complex<T> w = unit_within<parts >= 3 ? 8 : 3>(below ? angle + turn.high : angle,
                                                             below ? lacks + turn.low : lacks);
        const Complex<T> back = quarters == 1 ? Complex<T>{w.y, -w.x} : Complex<T>{-w.x, -w.y};
        return below ? back : w;
    }
}

// exp(-2 pi i m / n) for 0 <= m < n / parts, right to rounding: a rounded angle alone would lose digits
template <class T, int n, int parts = 1>
__device__ __forceinline__ Complex<T> root(unsigned m) {
    constexpr TwoParts<T> step = part_of_pi<T>(2, n);
    const bool upper = parts == 1 && 2 * m > n;  // the mirror image of one of the lower half
    const T number = T(int(upper ? n - m : m)), angle = number * -step.high;
    const T lacks = multiply_add(number, -step.low, multiply_add(number, -step.high, -angle));
    const Complex<T> w = unit_within<parts == 1 ? 2 : parts>(angle, lacks);
    return upper ? conjugate(w) : w;
}
