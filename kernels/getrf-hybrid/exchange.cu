// Exchanges rows in columns outside of a panel, as LAPACK has exchanged them in the panel.
#include "threads.cuh"

enum class Columns { next, rest };  // of the next panel, and all others

// As all rows of an outer block of `block` columns that ends with the `columns` from `first` on. A warp has a column, a
// lane a row of so many.
//   ipiv   row i was exchanged with row ipiv[i], both from 1
//   ahead  outer blocks that do not count as the rest
template <class T, int columns, Columns which>
__global__ void __launch_bounds__(128)
    exchange(T* __restrict__ A, const int* __restrict__ ipiv, int n, int first, int block, int ahead) {
    static_assert(columns <= kWarp, "a lane has a row");
    const int begin = first / block * block, panels = (first - begin) / columns + 1;
    const int left = which == Columns::rest ? begin : 0;  // columns on the left
    const int right = which == Columns::next ? begin + block : begin + (1 + ahead) * block;
    const int end = which == Columns::rest ? n : min(n, begin + 2 * block);
    extern __shared__ float4 memory[];
    int* const comes = reinterpret_cast<int*>(memory);  // where the new row of a lane was before
    int* const goes = comes + panels * columns;         // where the old one is now
    const int lane = threadIdx.x % kWarp, warp = threadIdx.x / kWarp;

    if (lane < columns) {
        for (int p = warp; p < panels; p += 4) {
            const int base = begin + p * columns, count = min(columns, n - base);
            int origin = lane, now = lane;
            for (int i = count - 1; i >= 0; --i) {
                const int other = ipiv[base + i] - 1 - base;
                origin = origin == i ? other : origin == other ? i : origin;
            }
            for (int i = 0; i < count; ++i) {
                const int other = ipiv[base + i] - 1 - base;
                now = now == i ? other : now == other ? i : now;
            }
            comes[p * columns + lane] = origin;
            goes[p * columns + lane] = now;
        }
    }
    __syncthreads();

    const int number = blockIdx.x * 4 + warp, column = number < left ? number : right + number - left;
    if (column >= end) return;
    T* const elements = A + size_t(column) * n + begin;
    for (int p = 0; p < panels; ++p) {
        const int base = p * columns;
        const bool live = lane < columns && begin + base + lane < n;
        T entering = T(0), leaving = T(0);
        if (live) {
            entering = elements[base + comes[base + lane]];
            leaving = elements[base + lane];
        }
        __syncwarp();
        if (live) {
            elements[base + lane] = entering;
            if (goes[base + lane] >= columns) elements[base + goes[base + lane]] = leaving;
        }
        __syncwarp();
    }
}
