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

// cos(x), or sin(x) where odd, for 0 <= x <= pi / 4: Taylor's series to double precision
__device__ constexpr double series(double x, bool odd) {
    double term = odd ? x : 1, sum = 0;
    for (int k = odd ? 1 : 0; k < 20; k += 2) {
        sum += term;
        term *= -x * x / ((k + 1) * (k + 2));
    }
    return sum;
}

// cos(2 pi k / n), 0 <= k < n: by way of the eighth of a turn that holds the angle
__device__ constexpr double cosine(int k, int n) {
    const int quarter = 4 * k / n, rest = 4 * k % n;  // of a quarter turn: rest / n
    const bool far = 2 * rest > n, odd = quarter % 2 == 1;
    const double angle = 1.5707963267948966 * (far ? n - rest : rest) / n;
    const double size = rest == 0 && odd ? 0 : series(angle, odd != far);
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

// ---- roots of indices known at run time ----------------------------------------------------------------------

__device__ __forceinline__ Complex<float> unit(float half_turns) {
    Complex<float> w;
    sincospif(half_turns, &w.y, &w.x);
    return w;
}
__device__ __forceinline__ Complex<double> unit(double half_turns) {
    Complex<double> w;
    sincospi(half_turns, &w.y, &w.x);
    return w;
}
__device__ __forceinline__ float multiply_add(float a, float b, float c) { return fmaf(a, b, c); }
__device__ __forceinline__ double multiply_add(double a, double b, double c) { return fma(a, b, c); }

// -2 / n as a number of type T and what it lacks, for n < 2^16
template <class T, int n>
struct Step {
    static constexpr double whole = -2.0 / n, head = float(whole);
    // head * n is exact, and so is the rest of the division by it
    static constexpr double lacks = ((-2.0 - head * n) - (whole - head) * n) / n;
    static constexpr T high = T(whole), low = sizeof(T) == 4 ? T(whole - head) : T(lacks);
};

// exp(-2 pi i m / n), 0 <= m < n, right to rounding: the angle in two parts, as a single one loses digits
template <class T, int n>
__device__ __forceinline__ Complex<T> root(unsigned m) {
    constexpr T high = Step<T, n>::high, low = Step<T, n>::low;
    const T turns = T(int(m)) * high;
    const Complex<T> w = unit(turns);
    if constexpr ((n & (n - 1)) == 0) {
        return w;  // the angle is exact
    } else {
        const T rest = T(3.14159265358979324) * multiply_add(T(int(m)), low, multiply_add(T(int(m)), high, -turns));
        return {multiply_add(-w.y, rest, w.x), multiply_add(w.x, rest, w.y)};
    }
}
