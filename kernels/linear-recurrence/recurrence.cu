// Linear recurrences y[i] = a[i] y[i - 1] + b[i] along rows, with y[-1] = 0, in a single pass; with `reverse`,
// y[i] = a[i] y[i + 1] + b[i] with y[N] = 0.
#include "scan_by.cuh"

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

template <class T, int P, int L, int E, bool stay, int groups, bool reverse, int blocks>
__global__ void __launch_bounds__(L, blocks)
    recurrence(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ y, unsigned long long* board,
               long long length, int of_row, int count) {
    scan_by<Recurrence<T>, P, L, E, stay, groups, false, reverse>(y, board, length, of_row, count, a, b);
}
