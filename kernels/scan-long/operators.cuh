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
//
// Plain<T> has all but join and identity, for items as they are in memory.
#pragma once
#include "elements.cuh"

template <class T>
struct Plain {
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

// Whether items are float: their sums and products go from tile to tile as double, so that the error of a row does not
// grow with its tiles.
template <class Item>
constexpr bool kIsFloat = false;
template <>
constexpr bool kIsFloat<float> = true;

constexpr double kLargest = 3.4028234663852886e38;  // float

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
    using Carry = double;
    static __device__ __forceinline__ float identity() { return 0.0f; }
    static __device__ __forceinline__ float join(float a, float b) { return a + b; }
    static __device__ __forceinline__ double join(double a, double b) { return a + b; }
    static __device__ __forceinline__ double widen(float x) { return x; }
    // the nearest finite float, and what it lacks
    static __device__ __forceinline__ float high(double c) { return float(fmin(fmax(c, -kLargest), kLargest)); }
    static __device__ __forceinline__ float low(double c) { return float(c - double(high(c))); }
    static __device__ __forceinline__ float lift(float high, float item) { return high + item; }
};

template <class T>
struct Sum : SumOf<T, kIsFloat<typename Plain<T>::Item>> {};

template <class T, bool precise>
struct ProductOf : Wrapping<T> {
    using Item = typename Wrapping<T>::Item;
    static __device__ __forceinline__ Item identity() { return Item(1); }
    static __device__ __forceinline__ Item join(Item a, Item b) { return a * b; }
};

template <class T>
struct ProductOf<T, true> : Plain<T> {
    using Carry = double;
    static __device__ __forceinline__ float identity() { return 1.0f; }
    static __device__ __forceinline__ float join(float a, float b) { return a * b; }
    static __device__ __forceinline__ double join(double a, double b) { return a * b; }
    static __device__ __forceinline__ double widen(float x) { return x; }
    static __device__ __forceinline__ float low(double) { return 1.0f; }
    static __device__ __forceinline__ float high(double c) { return float(c); }
    static __device__ __forceinline__ float lift(float high, float item) { return high * item; }
};

template <class T>
struct Product : ProductOf<T, kIsFloat<typename Plain<T>::Item>> {};

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
template <class T>
struct Min : Plain<T> {
    using Item = typename Plain<T>::Item;
    static __device__ __forceinline__ Item identity() { return Range<Item>::top(); }
    static __device__ __forceinline__ Item join(Item a, Item b) { return b < a || b != b ? (a != a ? a : b) : a; }
};

template <class T>
struct Max : Plain<T> {
    using Item = typename Plain<T>::Item;
    static __device__ __forceinline__ Item identity() { return Range<Item>::bottom(); }
    static __device__ __forceinline__ Item join(Item a, Item b) { return a < b || b != b ? (a != a ? a : b) : a; }
};

// Logical operators: elements that are not zero are true; sums are 0 or 1.
template <class T>
struct Logical : Plain<T> {
    using Item = unsigned;
    using Carry = unsigned;
    static __device__ __forceinline__ unsigned read(T x) { return Plain<T>::read(x) != 0; }
    static __device__ __forceinline__ T write(unsigned x) { return Plain<T>::write(typename Plain<T>::Item(x)); }
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
