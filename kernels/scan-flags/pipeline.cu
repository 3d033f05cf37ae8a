// Scans of segments as scan_flags.cu has them, by the pipeline of warps of pipeline.cuh. sm_90.
#include "pipeline.cuh"
#include "segments.cuh"

template <class T, class Operator, int P, int L, int E, int slots, int summers, int groups, bool exclusive, bool reverse,
          int aligned, bool in_place>
__global__ void __launch_bounds__(L + (2 + summers) * kWarp, 1)
    scan_flags_pipeline(const T* __restrict__ x, const unsigned char* __restrict__ heads, T* __restrict__ y,
                        unsigned long long* board, long long length, int of_row, int count,
                        RowLayout<3, aligned, in_place> layout) {
    using Shape = TileShape<P, L, E, true, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    scan_pipelined<Segmented<Operator>, Shape, slots, summers, groups, HeldSegments<Operator, Shape, 8>>(
        rows, layout.rows_of(2, y), board, layout.rows_of(0, layout.source(x, y)), layout.rows_of(1, heads));
}
