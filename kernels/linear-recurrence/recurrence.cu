// Linear recurrences y[i] = a[i] y[i - 1] + b[i] along rows, with y[-1] = 0, in a single pass; with `reverse`,
// y[i] = a[i] y[i + 1] + b[i] with y[N] = 0.
#include "recurrence.cuh"
#include "scan_by.cuh"

template <class T, int P, int L, int E, bool stay, int groups, bool reverse, int blocks>
__global__ void __launch_bounds__(L, blocks)
    recurrence(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ y, unsigned long long* board,
               long long length, int of_row, int count) {
    scan_by<Recurrence<T>, P, L, E, stay, groups, false, reverse>(y, board, length, of_row, count, a, b);
}
