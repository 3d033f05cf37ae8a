// Linear recurrences as recurrence.cu has them, by a pipeline of warps. sm_90.
#include "recurrence.cuh"
#include "scan_by_pipeline.cuh"

template <class T, int P, int L, int E, int slots, int summers, int groups, bool exclusive, bool reverse, int aligned,
          bool in_place>
__global__ void __launch_bounds__(L + (2 + summers) * kWarp, 1)
    recurrence_pipeline(const T* __restrict__ a, const T* __restrict__ b, T* __restrict__ y, unsigned long long* board,
                        long long length, int of_row, int count, RowLayout<3, aligned, in_place> layout) {
    scan_by_pipeline<Recurrence<T>, P, L, E, slots, summers, groups, exclusive, reverse>(
        layout.rows_of(2, y), board, length, of_row, count, layout.rows_of(0, a),
        layout.rows_of(1, layout.source(b, y)));
}
