// Scan of rows by the Kogge-Stone circuit.
// P. M. Kogge and H. S. Stone, "A Parallel Algorithm for the Efficient Solution of a General Class of Recurrence
// Equations", IEEE Transactions on Computers C-22(8), 1973.
//
// At each level every thread knows the total of the `span` threads that end with itself, and adds those that end
// span, 2 span, ... (r - 1) span threads before: spans grow r times. Every thread has a total that another asks for;
// in return no total has more than one reader (r - 1 where r is more than 2).
#include "scan.cuh"

struct KoggeStone {
    // Adds to `below` of each chunk what the threads of lower rank hold; `own` is what this one holds.
    template <int G, int r, int span = 1, class T, int C, class Exchange>
    static __device__ __forceinline__ void run(T (&below)[C], const T (&own)[C], int rank, Exchange& exchange) {
        if constexpr (span < G) {
            constexpr int R = r < G / span ? r : G / span;
            exchange.publish(below, own, true);
#pragma unroll
            for (int step = span; step < span * R; step += span) {
                const int from = rank - step;
#pragma unroll
                for (int c = 0; c < C; ++c) {
                    const T before = exchange.total_of(c, from < 0 ? rank : from);
                    if (from >= 0) below[c] += before;
                }
            }
            run<G, r, span * R>(below, own, rank, exchange);
        }
    }
};

// y[i] = x[0] + ... + x[i] in each of `batch` rows of N elements; with `exclusive`, y[i] = x[0] + ... + x[i - 1].
// The parameters are those of ScanShape; at least `blocks` blocks shall fit on a multiprocessor.
template <class T, int N, int P, int L, int r, int S, bool shuffle, bool exclusive, bool bulk, int blocks,
          int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    scan_ks(const T* __restrict__ x, T* __restrict__ y, int batch, RowLayout<2, aligned, in_place> layout) {
    using Shape = ScanShape<N, P, L, r, S, shuffle, exclusive, bulk, sizeof(T), aligned>;
    scan_rows<KoggeStone, Shape>(x, y, batch, layout);
}
