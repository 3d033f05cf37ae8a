// Scans of the segments of long rows in a single pass: as scan-long, but a segment begins at each element whose head is
// not zero, and at the beginning of each row.
#include "segments.cuh"

template <class T, class Operator, int P, int L, int E, bool stay, int groups, bool exclusive, bool reverse, int blocks,
          int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    scan_flags(const T* __restrict__ x, const unsigned char* __restrict__ heads, T* __restrict__ y,
               unsigned long long* board, long long length, int of_row, int count,
               RowLayout<3, aligned, in_place> layout) {
    using Shape = TileShape<P, L, E, true, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    scan_rows<Segmented<Operator>, Shape, stay, groups, 0, HeldSegments<Operator, Shape, 8>>(
        rows, layout.rows_of(2, y), board, layout.rows_of(0, layout.source(x, y)), layout.rows_of(1, heads));
}
