// Cholesky factorisations A = L L' of many small matrices in place, the lower triangle, as LAPACK's potf2.
//
// A matrix of order n belongs to a group of threads; a thread has `rows` of its rows. Left-looking in panels of `columns`
// columns: the threads subtract what the columns before contribute to the panel, hand the diagonal block to each other,
// factor it each for itself, and solve their rows against it: two barriers a panel. Orders are filled up to whole panels
// by rows and columns of the identity.
#include "batched.cuh"

// Where a matrix is while it is factored: in shared memory, as a square or by panels without what lies above them, or
// in device memory, of which only the rows that all threads need pass shared memory.
enum class Storage { full, half, device };

__device__ __forceinline__ float inverse_root(float x) { return rsqrtf(x); }
__device__ __forceinline__ double inverse_root(double x) { return rsqrt(x); }

template <class T, int n, int rows, int columns, Storage storage>
struct Shape {
    static constexpr int order = round_up(n, columns), panels = order / columns;
    static constexpr int threads = threads_for(order, rows);
    static constexpr int matrix = storage == Storage::full   ? order * order
                                  : storage == Storage::half ? columns * columns * panels * (panels + 1) / 2
                                                             : order * columns;
    static constexpr int pitch = pitch_for<T>(matrix + columns * columns, threads);
    // Few rows share their sectors with what lies above the diagonal: they are copied as they lie in memory.
    static constexpr bool whole = storage == Storage::full && n * sizeof(T) <= 128;

    // The element of row 0 in column k of the matrix in shared memory.
    static __device__ __forceinline__ int column(int k) {
        if (storage == Storage::full) return k * order;
        const int panel = k / columns, height = order - panel * columns;
        return columns * (panel * order - columns * (panel * (panel - 1) / 2)) + k % columns * height - panel * columns;
    }
};

template <class T, int n, int rows, int columns, Storage storage>
struct Factorisation {
    using Here = Shape<T, n, rows, columns, storage>;
    static constexpr int order = Here::order, threads = Here::threads;

    T* const matrix;    // of the problem, in shared memory; of Storage::device the rows of a panel, transposed
    T* const diagonal;  // block of a panel, row by row
    T* const A;         // in device memory
    const int rank;     // of the thread in its problem
    const bool live;    // whether there is such a problem
    int info = 0;

    __device__ __forceinline__ int row(int r) const { return rank + r * threads; }

    __device__ __forceinline__ T element(int i, int k) const {
        if constexpr (storage != Storage::device) return matrix[Here::column(k) + min(i, order - 1)];
        return live && i < n && k <= i ? A[k * n + i] : T(i == k);
    }

    __device__ __forceinline__ void put(int i, int k, T value) const {
        if constexpr (storage != Storage::device)
            matrix[Here::column(k) + i] = value;
        else if (live && i < n)
            A[k * n + i] = value;
    }

    // The rows of the panel at p in the columns before it, which all threads read.
    __device__ __forceinline__ void stage(int p) const {
        if constexpr (storage == Storage::device) {
            for (int e = rank; e < p * columns; e += threads) {
                const int k = e / columns, i = p + e % columns;
                matrix[e] = live && i < n ? A[k * n + i] : T(0);
            }
            meet<threads>();
        }
    }

    __device__ __forceinline__ const T* staged(int p, int k) const {
        return storage == Storage::device ? matrix + k * columns : matrix + Here::column(k) + p;
    }

    // The panel at p; rows of the slabs before `slab` are above it.
    template <int slab>
    __device__ __forceinline__ void panel(int p) {
        constexpr int last = rows - 1;
        const bool active = info == 0 && row(last) >= p;
        T sum[rows][columns];
        stage(p);
        if (active) {
#pragma unroll
            for (int r = slab; r < rows; ++r)
#pragma unroll
                for (int c = 0; c < columns; ++c) sum[r][c] = element(row(r), p + c);
#pragma unroll 1
            for (int before = 0; before < p; before += columns) {
#pragma unroll
                for (int c = 0; c < columns; ++c) {
                    T above[columns];
                    read(staged(p, before + c), above);
#pragma unroll
                    for (int r = slab; r < rows; ++r) {
                        const T left = element(row(r), before + c);
#pragma unroll
                        for (int b = 0; b < columns; ++b) sum[r][b] -= left * above[b];
                    }
                }
            }
#pragma unroll
            for (int r = slab; r < rows; ++r)
                if (row(r) >= p && row(r) < p + columns) write(diagonal + (row(r) - p) * columns, sum[r]);
        }
        meet<threads>();
        if (active) solve<slab>(p, sum);
        meet<threads>();
    }

    // Factors the diagonal block and solves the thread's rows of the panel against it.
    template <int slab>
    __device__ __forceinline__ void solve(int p, T (&sum)[rows][columns]) {
        T block[columns][columns];
#pragma unroll
        for (int a = 0; a < columns; ++a) read(diagonal + a * columns, block[a]);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            const T pivot = block[c][c];
            if (!(pivot > T(0)) && info == 0) {
                info = p + c + 1;
#pragma unroll
                for (int r = slab; r < rows; ++r)
                    if (row(r) == p + c) put(row(r), p + c, pivot);
            }
            const T inverse = inverse_root(pivot);
#pragma unroll
            for (int a = c + 1; a < columns; ++a) block[a][c] *= inverse;
#pragma unroll
            for (int b = c + 1; b < columns; ++b)
#pragma unroll
                for (int a = b; a < columns; ++a) block[a][b] -= block[a][c] * block[b][c];
#pragma unroll
            for (int r = slab; r < rows; ++r) {
                T x = sum[r][c];
#pragma unroll
                for (int b = 0; b < c; ++b) x -= sum[r][b] * block[c][b];
                sum[r][c] = x * inverse;
                if (info == 0 && row(r) >= p + c && row(r) < order)
                    put(row(r), p + c, row(r) == p + c && inverse == T(0) ? pivot : sum[r][c]);  // a root of infinity
            }
        }
    }

    template <int slab = 0>
    __device__ __forceinline__ void run() {
        constexpr int first = round_up(slab * threads, columns), end = order < (slab + 1) * threads ? order : (slab + 1) * threads;
        if constexpr (order <= 32) {
#pragma unroll
            for (int p = first; p < end; p += columns) panel<slab>(p);
        } else {
#pragma unroll 1
            for (int p = first; p < end; p += columns) panel<slab>(p);
        }
        if constexpr (slab + 1 < rows) run<slab + 1>();
    }
};

// info: 0, or the order of the first leading minor that is not positive (or no number). Columns before it are those of
// L, its diagonal element is what was found there, and all others are as they were. What lies above the diagonal is
// neither used nor changed.
template <class T, int n, int rows, int columns, int problems, Storage storage, int shared_bytes>
__global__ void __launch_bounds__(problems* Shape<T, n, rows, columns, storage>::threads)
    potrf(T* A, int* info, int batch) {
    using Here = Shape<T, n, rows, columns, storage>;
    constexpr int threads = Here::threads, order = Here::order, width = access_width<T>(n);
    static_assert(shared_bytes == problems * Here::pitch * sizeof(T), "the kernel file counts the same bytes");
    extern __shared__ float4 shared[];
    T* const all = reinterpret_cast<T*>(shared);
    const int first = blockIdx.x * problems, slot = threadIdx.x / threads, rank = threadIdx.x % threads;
    const int count = min(problems, batch - first) * n * n;
    T* const from = A + (size_t)first * n * n;
    const auto wanted = [](int e) { return Here::whole || e % n + width > e / n % n; };

    if constexpr (storage != Storage::device) {
        for_packs<width, problems * threads>(from, count, wanted, [&](int e, const Pack<T, width>& pack) {
            const int i = e % n, k = e / n % n;
            T* const to = all + e / (n * n) * Here::pitch + Here::column(k) + i;
#pragma unroll
            for (int w = 0; w < width; ++w)
                if (Here::whole || i + w >= k) to[w] = pack.at[w];
        });
        for (int e = rank; e < (order - n) * order; e += threads) {
            const int i = n + e / order, k = e % order;
            if (k <= i) all[slot * Here::pitch + Here::column(k) + i] = T(i == k);
        }
        __syncthreads();
    }
    T* const mine = all + slot * Here::pitch;
    const bool live = first + slot < batch;
    Factorisation<T, n, rows, columns, storage> factorisation{mine, mine + Here::matrix, from + slot * n * n, rank, live};
    factorisation.run();
    if (live && rank == (order - 1) % threads) info[first + slot] = factorisation.info;
    if constexpr (storage != Storage::device) {
        __syncthreads();
        for (int e = threadIdx.x * width; e < count; e += problems * threads * width) {
            const int i = e % n, k = e / n % n;
            if (!wanted(e)) continue;
            Pack<T, width> pack;
            const T* const source = all + e / (n * n) * Here::pitch + Here::column(k) + i;
#pragma unroll
            for (int w = 0; w < width; ++w) pack.at[w] = source[w];
            if (Here::whole || i >= k) {
                *reinterpret_cast<Pack<T, width>*>(from + e) = pack;
            } else {
#pragma unroll
                for (int w = 1; w < width; ++w)
                    if (i + w >= k) from[e + w] = pack.at[w];
            }
        }
    }
}
