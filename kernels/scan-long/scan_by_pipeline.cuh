// Scans of long rows by a user's operator as scan_by.cuh has them, by the pipeline of warps of pipeline.cuh. sm_90.
#pragma once
#include "pipeline.cuh"
#include "scan_by.cuh"

// As scan_by, in blocks of L + 32 (2 + summers) threads that stay, with slots P L elements of each input in dynamic
// shared memory. E elements are 16 bytes, rows begin at multiples of 16 bytes, and P / E is a power of two.
template <class Operator, int P, int L, int E, int slots, int summers, int groups, bool exclusive, bool reverse, class Out,
          class... In>
__device__ __forceinline__ void scan_by_pipeline(Out y, unsigned long long* board, long long length, int of_row,
                                                 int count, In... x) {
    using Shape = TileShape<P, L, E, true, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    scan_pipelined<ScannedBy<Operator>, Shape, slots, summers, groups>(rows, y, board, x...);
}
