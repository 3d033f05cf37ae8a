// Scans of long rows as scan.cu has them, by a pipeline of warps (pipeline.cuh). sm_90.
//
// Tunables: P elements per thread and L threads of scanning warps, E elements per access, `slots` tiles in shared memory,
// `summers` warps that add them up, 32 `groups` tiles looked back at in one go.
#include "pipeline.cuh"

template <class T, class Op, int P, int L, int E, int slots, int summers, int groups, bool exclusive, bool reverse,
          int aligned, bool in_place>
__global__ void __launch_bounds__(L + (2 + summers) * kWarp, 1)
    scan_pipeline(const T* __restrict__ x, T* __restrict__ y, unsigned long long* board, long long length, int of_row,
                  int count, RowLayout<2, aligned, in_place> layout) {
    using Shape = TileShape<P, L, E, true, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    scan_pipelined<Op, Shape, slots, summers, groups>(rows, layout.rows_of(1, y), board,
                                                      layout.rows_of(0, layout.source(x, y)));
}
