// Scans of segments as scan_offsets.cu has them, by the pipeline of warps of pipeline.cuh: summers search the offsets of
// their tiles. sm_90.
#include "pipeline.cuh"
#include "marked_segments.cuh"

template <class T, class Operator, class Offset, int P, int L, int E, int slots, int summers, int groups, bool exclusive,
          bool reverse, int aligned, bool in_place>
__global__ void __launch_bounds__(L + (2 + summers) * kWarp, 1)
    scan_offsets_pipeline(const T* __restrict__ x, const Offset* __restrict__ offsets, T* __restrict__ y,
                          unsigned long long* board, long long length, long long ends, int of_row, int count,
                          RowLayout<2, aligned, in_place> layout) {
    using Shape = TileShape<P, L, E, true, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    const MarkSegments<Shape, Offset> mark{offsets, ends};
    scan_pipelined<Segmented<Operator>, Shape, slots, summers, groups, HeldMarked<Operator, Shape>>(
        rows, mark, layout.rows_of(1, y), board, layout.rows_of(0, layout.source(x, y)));
}
