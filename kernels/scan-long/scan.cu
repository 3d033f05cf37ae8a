// Scans of long rows in a single pass: y[i] = x[0] op ... op x[i] in each of some rows of any length, for the operators
// of operators.cuh; with `exclusive`, x[i] is left out; with `reverse`, y[i] = x[N - 1] op ... op x[i].
//
// Tunables: P elements per thread, L threads per block, E elements per access; threads exchange totals by shuffles or
// through shared memory; blocks stay for several tiles; 32 `groups` tiles looked back at in one go, and a pause between
// looks; at least `blocks` blocks shall fit on a multiprocessor.
#include "long_scan.cuh"

template <class T, class Op, int P, int L, int E, bool shuffle, bool stay, int groups, int pause_ns, bool exclusive,
          bool reverse, int blocks, int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    scan_long(const T* __restrict__ x, T* __restrict__ y, unsigned long long* board, long long length, int of_row,
              int count, RowLayout<2, aligned, in_place> layout) {
    using Shape = TileShape<P, L, E, shuffle, exclusive, reverse>;
    const Rows<Shape> rows{length, unsigned(of_row), unsigned(count)};
    scan_rows<Op, Shape, stay, groups, pause_ns>(rows, layout.rows_of(1, y), board,
                                                 layout.rows_of(0, layout.source(x, y)));
}
