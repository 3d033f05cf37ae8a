// The operator of linear recurrences.
#pragma once

// The map y -> factor y + summand. Maps are composed, which is associative, and not commutative.
template <class T>
struct Recurrence {
    struct Item {
        T factor, summand;
    };
    static __device__ __forceinline__ Item read(T a, T b) { return {a, b}; }
    static __device__ __forceinline__ T write(const Item& map) { return map.summand; }
    static __device__ __forceinline__ Item identity() { return {T(1), T(0)}; }
    static __device__ __forceinline__ Item combine(const Item& before, const Item& after) {
        return {before.factor * after.factor, fma(after.factor, before.summand, after.summand)};
    }
};
