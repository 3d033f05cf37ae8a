// Scans of the segments of long rows in a single pass: as scan-long, but segment k of a row has its elements
// offsets[k] … offsets[k + 1] - 1. A block finds the offsets of its tile by a search, and marks where segments begin.
#include "segments.cuh"

template <class T, class Operator, class Offset, int P, int L, int E, bool stay, int groups, bool exclusive, bool reverse,
          int blocks, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    scan_offsets(const T* __restrict__ x, const Offset* __restrict__ offsets, T* __restrict__ y,
                 unsigned long long* board, long long length, long long ends, int of_row, int count,
                 RowLayout<2, aligned, in_place> layout) {
    using Shape = TileShape<P, L, E, true, exclusive, reverse>;
    using Held = HeldSegments<Operator, Shape, 1>;
    __shared__ unsigned heads[Shape::size / 32];
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    const auto elements = layout.rows_of(0, layout.source(x, y));
    scan_tiles<Segmented<Operator>, Shape, Held, stay, groups, 0>(
        rows, layout.rows_of(1, y), board,
        [=](unsigned tile, typename Held::Value& value) {
            read_tile<Segmented<Operator>, Shape>(rows.room(tile), value, threadIdx.x, rows.at(elements, tile));
            mark_segments<Shape>(heads, offsets + rows.row(tile) * ends, ends, rows.within(tile));
            take_heads(value, heads);
        },
        [=](unsigned tile) { fetch_ahead(rows.at(elements, tile), rows.extent(tile)); });
}
