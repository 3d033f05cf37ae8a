// Scan of rows by the Ladner-Fischer circuit.
// "Performance Tuning for GPU-Embedded Systems", section III and Fig. 2; R. E. Ladner and M. J. Fischer,
// "Parallel Prefix Computation", J. ACM 27(4), 1980.
//
// At each level neighbouring blocks of `span` threads join into one, and every thread of a block adds the totals of
// the blocks before its own: one total when r is 2, up to r - 1 when it is more, for fewer levels. Only the last
// thread of a block has a total that others ask for.
#include "scan.cuh"

struct LadnerFischer {
    // Adds to `below` of each chunk what the threads of lower rank hold; `own` is what this one holds.
    template <int G, int r, int span = 1, class T, int C, class Exchange>
    static __device__ __forceinline__ void run(T (&below)[C], const T (&own)[C], int rank, Exchange& exchange) {
        if constexpr (span < G) {
            constexpr int R = r < G / span ? r : G / span;
            exchange.publish(below, own, rank % span == span - 1);
            const int digit = rank / span % R, lowest = rank / (span * R) * (span * R);
#pragma unroll
            for (int c = 0; c < C; ++c) {
#pragma unroll
                for (int block = 0; block < R - 1; ++block) {
                    const T before = exchange.total_of(c, lowest + block * span + span - 1);
                    if (block < digit) below[c] += before;
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
    scan_lf(const T* __restrict__ x, T* __restrict__ y, int batch, RowLayout<2, aligned, in_place> layout) {
    using Shape = ScanShape<N, P, L, r, S, shuffle, exclusive, bulk, sizeof(T), aligned>;
    scan_rows<LadnerFischer, Shape>(x, y, batch, layout);
}
