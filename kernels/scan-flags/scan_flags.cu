// Scans of the segments of long rows in a single pass: as scan-long, but a segment begins at each element whose head is
// not zero, and at the beginning of each row.
#include "segments.cuh"

template <class T, class Operator, int P, int L, int E, bool stay, int groups, bool exclusive, bool reverse, int blocks,
          int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    scan_flags(const T* __restrict__ x, const unsigned char* __restrict__ heads, T* __restrict__ y,
               unsigned long long* board, long long length, int of_row, int count,
               RowLayout<3, aligned, in_place> layout) {
    using Op = Segmented<Operator>;
    using Shape = TileShape<P, L, E, true, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    const auto elements = layout.rows_of(0, layout.source(x, y));
    const auto flags = layout.rows_of(1, heads);
    scan_tiles<Op, Shape, stay, groups, 0>(
        rows, layout.rows_of(2, y), board,
        [=](unsigned tile, typename Op::Item(&value)[P]) {
            const long long room = rows.room(tile);
            const Part<T, Shape> part = part_of<T, Shape>(rows.at(elements, tile), room);
            make_items<Op, Shape>(value, room, part, beginnings<Shape>(rows.at(flags, tile), room));
        },
        [=](unsigned tile) {
            fetch_ahead(rows.at(elements, tile), rows.extent(tile));
            fetch_ahead(rows.at(flags, tile), rows.extent(tile));
        });
}
