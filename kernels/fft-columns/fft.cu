// Complex transforms along the middle axis of x, shape (batch, N, W): of the N points of each of W columns, which lie W
// numbers apart. Out of place; the inverse is divided by N.
//
// Tunables: A = 1 transforms tiles of columns in one launch. A > 1 first takes a radix A of every column, A points a
// thread, in a launch of its own: tiles of columns of N / A points are then wide enough for whole segments of memory.
// r, P, split, blocks as of fft-any, of N / A points; C columns of a tile.
#include "column_fft.cuh"

template <class T, int A, int M, int W, bool inverse, int L>
__global__ void __launch_bounds__(L)
    fft_first_radix(const Complex<T>* __restrict__ x, Complex<T>* __restrict__ y, long long count) {
    const long long i = (long long)blockIdx.x * L + threadIdx.x;
    if (i >= count) return;
    const unsigned point = i % ((long long)M * W), j = point / W, column = point % W;
    const long long plane = i / ((long long)M * W) * ((long long)A * M * W);
    Complex<T> u[A];
#pragma unroll
    for (int a = 0; a < A; ++a) u[a] = swapped<inverse>(x[plane + point + a * M * W]);
    first_radix(u, root<T, A * M>(j), root<T, A * M>(A > 8 ? 4 * j : 0));
#pragma unroll
    for (int q = 0; q < A; ++q) y[plane + (A * j + q) * W + column] = u[q];
}
