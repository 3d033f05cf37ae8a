// Linear recurrences y[i] = a[i] y[i - 1] + b[i] along rows, with y[-1] = 0, in a single pass; with `reverse`,
// y[i] = a[i] y[i + 1] + b[i] with y[N] = 0; with `exclusive`, each y is written one place later, and 0 first.
#include "recurrence.cuh"
#include "scan_by.cuh"

template <class T, int P, int L, int E, bool stay, int groups, bool exclusive, bool reverse, int blocks, int aligned,
          bool in_place>
__global__ void __launch_bounds__(L, blocks)
    recurrence(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ y, unsigned long long* board,
               long long length, int of_row, int count, RowLayout<3, aligned, in_place> layout) {
    scan_by<Recurrence<T>, P, L, E, stay, groups, exclusive, reverse>(layout.rows_of(2, y), board, length, of_row, count,
                                                                      layout.rows_of(0, a),
                                                                      layout.rows_of(1, layout.source(b, y)));
}
