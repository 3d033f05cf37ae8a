// Associative operators of scans. An operator is a struct of static functions and of types:
//
//   In, Out  elements of x and of y            Item   what is computed with; as all values, of whole words
//   Carry    what goes from tile to tile: an Item, or a more precise one
//   Item read(In), Out write(Item)             between memory and registers
//   Item join(Item, Item), Carry join(Carry, Carry)  the operator; the first one stands before the second
//   Item identity()                            joined with any item, gives that item
//   Carry widen(Item)                          of a tile
//   Item low(Carry), Item high(Carry), Item lift(Item high, Item item)
//                                              with what comes before, c, an item becomes
//                                              lift(high(c), join(low(c), item)), which is join(c, item)
//   Item without(Item before, Item item)       what exclusive scans leave at an item: `before`, what comes before it
//   bool settles(Carry)                        joined with whatever stands before it, it stays what it is
//
// Plain<T> has all but join and identity, for items as they are in memory.
#pragma once
#include "elements.cuh"

// The type of a number's parts.
template <class T>
struct RealOf {
    using type = T;
};
template <class T>
struct RealOf<Complex<T>> {
    using type = T;
};

template <class T>
struct Plain {
    using Real = typename RealOf<T>::type;
    using In = T;
    using Out = T;
    using Item = T;
    using Carry = T;
    static __device__ __forceinline__ Item read(In x) { return x; }
    static __device__ __forceinline__ Out write(Item x) { return x; }
    static __device__ __forceinline__ Carry widen(Item x) { return x; }
    static __device__ __forceinline__ Item low(const Carry& c) { return c; }
    static __device__ __forceinline__ Item high(const Carry& c) { return c; }
    static __device__ __forceinline__ Item lift(const Item&, const Item& item) { return item; }
    template <class I>
    static __device__ __forceinline__ I without(const I& before, const I&) {
        return before;
    }
    template <class C>
    static __device__ __forceinline__ bool settles(const C&) {
        return false;
    }
};

// Elements of 16 bits are items of float.
template <>
struct Plain<Half> : Plain<float> {
    using In = Half;
    using Out = Half;
    static __device__ __forceinline__ float read(Half x) { return widened(x); }
    static __device__ __forceinline__ Half write(float x) { return to_half(x); }
};
template <>
struct Plain<BFloat16> : Plain<float> {
    using In = BFloat16;
    using Out = BFloat16;
    static __device__ __forceinline__ float read(BFloat16 x) { return widened(x); }
    static __device__ __forceinline__ BFloat16 write(float x) { return to_bfloat16(x); }
};

// Items whose sums and products go from tile to tile in double precision, so that the error of a row does not grow with
// its tiles.
template <class Item>
constexpr bool kIsPrecise = false;
template <>
constexpr bool kIsPrecise<float> = true;
template <>
constexpr bool kIsPrecise<Complex<float>> = true;

template <class Item>
struct Precise;

template <>
struct Precise<float> {
    using type = double;
    static constexpr double kLargest = 3.4028234663852886e38;  // float
    static __device__ __forceinline__ float number(float x) { return x; }
    static __device__ __forceinline__ double widen(float x) { return x; }
    static __device__ __forceinline__ float narrow(double c) { return float(c); }
    static __device__ __forceinline__ float finite(double c) { return float(fmin(fmax(c, -kLargest), kLargest)); }
    static __device__ __forceinline__ float rest(double c) { return float(c - double(finite(c))); }
};

template <>
struct Precise<Complex<float>> {
    using type = Complex<double>;
    using Part = Precise<float>;
    static __device__ __forceinline__ Complex<float> number(float x) { return {x, 0.0f}; }
    static __device__ __forceinline__ type widen(Complex<float> x) { return {x.re, x.im}; }
    static __device__ __forceinline__ Complex<float> narrow(type c) { return {float(c.re), float(c.im)}; }
    static __device__ __forceinline__ Complex<float> finite(type c) { return {Part::finite(c.re), Part::finite(c.im)}; }
    static __device__ __forceinline__ Complex<float> rest(type c) { return {Part::rest(c.re), Part::rest(c.im)}; }
};

// Sums and products of whole numbers wrap: their items have no sign.
template <class T>
struct Wrapping : Plain<T> {};
template <>
struct Wrapping<int> : Plain<unsigned> {
    using In = int;
    using Out = int;
};
template <>
struct Wrapping<long long> : Plain<unsigned long long> {
    using In = long long;
    using Out = long long;
};

template <class T, bool precise>
struct SumOf : Wrapping<T> {
    using Item = typename Wrapping<T>::Item;
    static __device__ __forceinline__ Item identity() { return Item(0); }
    static __device__ __forceinline__ Item join(Item a, Item b) { return a + b; }
};

template <class T>
struct SumOf<T, true> : Plain<T> {
    using Item = typename Plain<T>::Item;
    using Carry = typename Precise<Item>::type;
    static __device__ __forceinline__ Item identity() { return Precise<Item>::number(0.0f); }
    template <class V>
    static __device__ __forceinline__ V join(V a, V b) {
        return a + b;
    }
    static __device__ __forceinline__ Carry widen(Item x) { return Precise<Item>::widen(x); }
    // the nearest finite item, and what it lacks
    static __device__ __forceinline__ Item high(Carry c) { return Precise<Item>::finite(c); }
    static __device__ __forceinline__ Item low(Carry c) { return Precise<Item>::rest(c); }
    static __device__ __forceinline__ Item lift(Item high, Item item) { return high + item; }
};

template <class T>
struct Sum : SumOf<T, kIsPrecise<typename Plain<T>::Item>> {};

template <class T, bool precise>
struct ProductOf : Wrapping<T> {
    using Item = typename Wrapping<T>::Item;
    static __device__ __forceinline__ Item identity() { return Item(1); }
    static __device__ __forceinline__ Item join(Item a, Item b) { return a * b; }
};

template <class T>
struct ProductOf<T, true> : Plain<T> {
    using Item = typename Plain<T>::Item;
    using Carry = typename Precise<Item>::type;
    static __device__ __forceinline__ Item identity() { return Precise<Item>::number(1.0f); }
    template <class V>
    static __device__ __forceinline__ V join(V a, V b) {
        return a * b;
    }
    static __device__ __forceinline__ Carry widen(Item x) { return Precise<Item>::widen(x); }
    static __device__ __forceinline__ Item low(Carry) { return identity(); }
    static __device__ __forceinline__ Item high(Carry c) { return Precise<Item>::narrow(c); }
    static __device__ __forceinline__ Item lift(Item high, Item item) { return high * item; }
};

template <class T>
struct Product : ProductOf<T, kIsPrecise<typename Plain<T>::Item>> {};

// The least and the largest value of a type of items.
template <class T>
struct Range;
template <>
struct Range<float> {
    static __device__ __forceinline__ float top() { return __uint_as_float(0x7f800000u); }
    static __device__ __forceinline__ float bottom() { return -top(); }
};
template <>
struct Range<double> {
    static __device__ __forceinline__ double top() { return __longlong_as_double(0x7ff0000000000000ll); }
    static __device__ __forceinline__ double bottom() { return -top(); }
};
template <>
struct Range<Complex<float>> {
    static __device__ __forceinline__ Complex<float> top() { return {Range<float>::top(), Range<float>::top()}; }
    static __device__ __forceinline__ Complex<float> bottom() { return {-Range<float>::top(), -Range<float>::top()}; }
};
template <>
struct Range<int> {
    static __device__ __forceinline__ int top() { return 0x7fffffff; }
    static __device__ __forceinline__ int bottom() { return -0x7fffffff - 1; }
};
template <>
struct Range<unsigned> {
    static __device__ __forceinline__ unsigned top() { return 0xffffffffu; }
    static __device__ __forceinline__ unsigned bottom() { return 0; }
};
template <>
struct Range<long long> {
    static __device__ __forceinline__ long long top() { return 0x7fffffffffffffffll; }
    static __device__ __forceinline__ long long bottom() { return -0x7fffffffffffffffll - 1; }
};

// NaN is the least and the largest number of all: it stays from where it stands on.
template <class Item>
__device__ __forceinline__ Item least(Item a, Item b) {
    if ((b < a || b != b) && !(a != a)) a = b;
    return a;
}
template <class Item>
__device__ __forceinline__ Item largest(Item a, Item b) {
    if ((a < b || b != b) && !(a != a)) a = b;
    return a;
}
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
__device__ __forceinline__ float least(float a, float b) {
    asm("min.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
}
__device__ __forceinline__ float largest(float a, float b) {
    asm("max.NaN.f32 %0, %0, %1;" : "+f"(a) : "f"(b));
    return a;
}
#endif

template <class T>
struct Min : Plain<T> {
    using Item = typename Plain<T>::Item;
    static __device__ __forceinline__ Item identity() { return Range<Item>::top(); }
    static __device__ __forceinline__ Item join(Item a, Item b) { return least(a, b); }
};

template <class T>
struct Max : Plain<T> {
    using Item = typename Plain<T>::Item;
    static __device__ __forceinline__ Item identity() { return Range<Item>::bottom(); }
    static __device__ __forceinline__ Item join(Item a, Item b) { return largest(a, b); }
};

// Logical operators: elements that are not zero are true; sums are 0 or 1.
template <class T>
struct Logical : Plain<T> {
    using Item = unsigned;
    using Carry = unsigned;
    static __device__ __forceinline__ unsigned read(T x) { return Plain<T>::read(x) != typename Plain<T>::Item{}; }
    static __device__ __forceinline__ T write(unsigned x) { return Plain<T>::write({typename Plain<T>::Real(x)}); }
    static __device__ __forceinline__ unsigned widen(unsigned x) { return x; }
    static __device__ __forceinline__ unsigned low(unsigned c) { return c; }
    static __device__ __forceinline__ unsigned high(unsigned c) { return c; }
    static __device__ __forceinline__ unsigned lift(unsigned, unsigned item) { return item; }
};

template <class T>
struct And : Logical<T> {
    static __device__ __forceinline__ unsigned identity() { return 1; }
    static __device__ __forceinline__ unsigned join(unsigned a, unsigned b) { return a & b; }
};

template <class T>
struct Or : Logical<T> {
    static __device__ __forceinline__ unsigned identity() { return 0; }
    static __device__ __forceinline__ unsigned join(unsigned a, unsigned b) { return a | b; }
};

template <class T>
struct Xor : Logical<T> {
    static __device__ __forceinline__ unsigned identity() { return 0; }
    static __device__ __forceinline__ unsigned join(unsigned a, unsigned b) { return a ^ b; }
};
