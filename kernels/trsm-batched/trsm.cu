// Triangular systems L X = B of many small matrices, X in place of B: L lower with its diagonal, n right-hand sides.
//
// A thread has `columns` of the right-hand sides, and solves `rows` rows of them at a time: it subtracts what the rows
// before contribute, then eliminates within the panel. The threads of a problem share the triangle and nothing else.
// A block has `strip` columns of B in shared memory, and the triangle: all of it, or the rows of one panel at a time.
#include "direct.cuh"

enum class Triangle { whole, panels, own, spread };  // in shared memory, or in registers

template <class T, int n, int columns, int rows, int strip, Triangle triangle>
struct Shape {
    static constexpr int order = round_up(n, rows), panels = order / rows;
    static constexpr int width = n < strip ? n : strip, strips = (n + width - 1) / width;
    static constexpr int threads = threads_for(width, columns);
    static constexpr int leading = (order / kWide<T> | 1) * kWide<T>;  // lanes that read their columns use all banks
    static constexpr int factor =
        triangle == Triangle::whole ? rows * rows * panels * (panels + 1) / 2 : rows * order;
    static constexpr int pitch = pitch_for<T>(factor + width * leading, threads * kWide<T>);

    // Where the rows of the panel at p are, column by column.
    static __device__ __forceinline__ int panel(int p) {
        return triangle == Triangle::whole ? rows * p * (p / rows + 1) / 2 : 0;
    }
};

// Puts rows i ... of column k of L into their panel; the diagonal as a divisor.
template <int rows, class T, int width>
__device__ __forceinline__ void put(T* panel, int i, int k, Pack<T, width> pack) {
    if (i <= k && k < i + width) {
#pragma unroll
        for (int w = 0; w < width; ++w)
            if (i + w == k) pack.at[w] = divisor(pack.at[w]);
    }
    *reinterpret_cast<Pack<T, width>*>(panel + k * rows + i % rows) = pack;
}

// Solves the panel at p for the thread's columns, which begin at x[c].
template <int columns, int rows, class T>
__device__ __forceinline__ void solve(const T* panel, T* const (&x)[columns], const bool (&mine)[columns], int p) {
    constexpr int wide = kWide<T>;
    T sum[columns][rows];
#pragma unroll
    for (int c = 0; c < columns; ++c) read(x[c] + p, sum[c]);
#pragma unroll 1
    for (int k = 0; k < p; k += rows) {
#pragma unroll
        for (int step = 0; step < rows; step += wide) {
            T known[columns][wide];
#pragma unroll
            for (int c = 0; c < columns; ++c) read(x[c] + k + step, known[c]);
#pragma unroll
            for (int w = 0; w < wide; ++w) {
                T left[rows];
                read(panel + (k + step + w) * rows, left);
#pragma unroll
                for (int c = 0; c < columns; ++c)
#pragma unroll
                    for (int r = 0; r < rows; ++r) sum[c][r] -= left[r] * known[c][w];
            }
        }
    }
#pragma unroll
    for (int k = 0; k < rows; ++k) {
        T left[rows];
        read(panel + (p + k) * rows, left);
#pragma unroll
        for (int c = 0; c < columns; ++c) {
            sum[c][k] = divided(sum[c][k], left[k]);
#pragma unroll
            for (int r = k + 1; r < rows; ++r) sum[c][r] -= left[r] * sum[c][k];
        }
    }
#pragma unroll
    for (int c = 0; c < columns; ++c)
        if (mine[c]) write(x[c] + p, sum[c]);
}

// Solves by way of shared memory.
template <class T, int n, int columns, int rows, int strip, int problems, Triangle triangle, int shared_bytes>
__device__ __forceinline__ void solve_shared(const T* __restrict__ L, T* __restrict__ B, int batch) {
    using Here = Shape<T, n, columns, rows, strip, triangle>;
    constexpr int threads = Here::threads, pitch = Here::pitch, leading = Here::leading, factor = Here::factor;
    constexpr int width = access_width<T>(n);
    static_assert(shared_bytes == problems * pitch * sizeof(T), "the kernel file counts the same bytes");
    static_assert(problems == 1 || Here::strips == 1, "problems that share a block are whole");
    extern __shared__ float4 shared[];
    T* const all = reinterpret_cast<T*>(shared);
    const int slot = threadIdx.x / threads, rank = threadIdx.x % threads;
    const int first = blockIdx.x / Here::strips * problems, start = blockIdx.x % Here::strips * Here::width;
    const int live = min(problems, batch - first), across = min(Here::width, n - start);
    const T* const triangles = L + (size_t)first * n * n;
    T* const sides = B + (size_t)first * n * n + start * n;

    if constexpr (triangle == Triangle::whole) {
        for_packs<width, problems * threads>(
            triangles, live * n * n, [](int e) { return e % n + width > e / n % n; },
            [&](int e, const Pack<T, width>& pack) {
                const int i = e % n, k = e / n % n;
                put<rows>(all + e / (n * n) * pitch + Here::panel(i / rows * rows), i, k, pack);
            });
    }
    for_packs<width, problems * threads>(
        sides, live * n * across, [](int) { return true; },
        [&](int e, const Pack<T, width>& pack) {
            T* const to = all + e / (n * n) * pitch + factor + e / n % n * leading + e % n;
            *reinterpret_cast<Pack<T, width>*>(to) = pack;
        });
    __syncthreads();

    T* const mine = all + slot * pitch;
    const bool active = slot < live && rank < across;
    T* x[columns];
    bool own[columns];
#pragma unroll
    for (int c = 0; c < columns; ++c) {
        own[c] = rank + c * threads < across;
        x[c] = mine + factor + (own[c] ? rank + c * threads : rank) * leading;  // else the first again, for nothing
    }
#pragma unroll 1
    for (int p = 0; p < n; p += rows) {
        if constexpr (triangle == Triangle::panels) {
            for (int e = rank * width; slot < live && e < (p + rows) * rows; e += threads * width) {
                const int i = p + e % rows, k = e / rows;
                if (i < n && k < i + width)
                    put<rows>(mine, i, k, *reinterpret_cast<const Pack<T, width>*>(triangles + slot * n * n + k * n + i));
            }
            meet<threads>();
        }
        if (active) solve<columns, rows>(mine + Here::panel(p), x, own, p);
        if constexpr (triangle == Triangle::panels) meet<threads>();
    }
    __syncthreads();
    for (int e = threadIdx.x * width; e < live * n * across; e += problems * threads * width) {
        const T* const from = all + e / (n * n) * pitch + factor + e / n % n * leading + e % n;
        *reinterpret_cast<Pack<T, width>*>(sides + e) = *reinterpret_cast<const Pack<T, width>*>(from);
    }
}

// What lies above the diagonal of L is not used. Rows that fill up the last panel hold anything: no other needs them.
template <class T, int n, int columns, int rows, int strip, int problems, Triangle triangle, int shared_bytes>
__global__ void __launch_bounds__(problems* Shape<T, n, columns, rows, strip, triangle>::threads)
    trsm(const T* __restrict__ L, T* __restrict__ B, int batch) {
    if constexpr (triangle == Triangle::own)
        solve_direct<OwnTriangle, T, n, columns, problems>(L, B, batch);
    else if constexpr (triangle == Triangle::spread)
        solve_direct<SpreadTriangle, T, n, columns, problems>(L, B, batch);
    else
        solve_shared<T, n, columns, rows, strip, problems, triangle, shared_bytes>(L, B, batch);
}
