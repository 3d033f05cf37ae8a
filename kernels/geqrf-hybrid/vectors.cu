// What a library does not do of a QR factorisation whose panels the CPU factors: the vectors of the reflections of a
// panel with their zeros and ones, and 1 / tau.

// The vectors of the `columns` columns whose diagonal begins at (first, first); of reflections with tau 0 zeros.
//   V  n x columns, of which rows from `first` on are written
template <class T>
__global__ void __launch_bounds__(256)
    vectors(const T* __restrict__ A, const T* __restrict__ tau, T* __restrict__ V, int n, int first) {
    const int row = first + blockIdx.x * 256 + threadIdx.x, column = blockIdx.y, k = row - first - column;
    if (row >= n) return;
    const T below = A[size_t(first + column) * n + row];
    V[size_t(column) * n + row] = tau[first + column] == T(0) || k < 0 ? T(0) : k == 0 ? T(1) : below;
}

// The diagonal of the inverse of T: 1 / tau (C. Puglisi, SIAM J. Sci. Stat. Comput. 13 (1992) 723). Where tau is 0, the
// vector is 0 in V and anything does.
template <class T>
__global__ void __launch_bounds__(128)
    diagonal(const T* __restrict__ tau, T* __restrict__ inverse, int columns, int first) {
    const int j = blockIdx.x * 128 + threadIdx.x;
    if (j < columns) inverse[size_t(j) * (columns + 1)] = tau[first + j] == T(0) ? T(1) : T(1) / tau[first + j];
}
