// Tridiagonal systems by prefix sums of what the Thomas algorithm does, in Ladner and Fischer's circuit.
// "Performance Tuning for GPU-Embedded Systems", sections III and V-A and Fig. 2; R. E. Ladner and M. J. Fischer,
// "Parallel Prefix Computation", J. ACM 27(4), 1980; H. S. Stone, "An efficient parallel algorithm for the solution
// of a tridiagonal linear system of equations", J. ACM 20(1), 1973.
//
// With the reduced system's rows as x_i = d_i - l_i x_(i-1) - r_i x_(i+1), elimination from the first row on leaves
// x_i = y_i - q_i x_(i+1), where q_i = r_i / (1 - l_i q_(i-1)) and y_i = (d_i - l_i y_(i-1)) / (1 - l_i q_(i-1)). Each
// of q, y and, on the way back, x goes from row to row through a function whose compositions can be formed in any
// order: three scans, one after the other. Scanning the matrices that take (x_(i-1), x_i) to x_(i+1) instead would be
// one scan, but on dominant systems their products grow beyond all bounds; the fractions stay normalised. They lose
// digits where dominance is lost: on (-1, 2, -1) the defect grows with G, which the other methods keep at rounding.
#include "tridiag_solve.cuh"

// q -> (a q + b) / (c q + 1)
template <class T>
struct Fraction {
    T a, b, c;
    __device__ __forceinline__ T operator()(T q) const { return (a * q + b) * reciprocal(c * q + T{1}); }
};

// y -> a y + b
template <class T>
struct Linear {
    T a, b;
    __device__ __forceinline__ T operator()(T y) const { return a * y + b; }
};

// First `f`, then `g`
template <class T>
__device__ __forceinline__ Fraction<T> composed(Fraction<T> g, Fraction<T> f) {
    const T k = reciprocal(g.c * f.b + T{1});
    return {(g.a * f.a + g.b * f.c) * k, (g.a * f.b + g.b) * k, (g.c * f.a + f.c) * k};
}
template <class T>
__device__ __forceinline__ Linear<T> composed(Linear<T> g, Linear<T> f) {
    return {g.a * f.a, g.a * f.b + g.b};
}

// What goes into a thread, and what comes out
template <class T>
struct Passed {
    T in, out;
};

// Each of G threads composes all functions of lower rank with its own: at each level the upper half of a block of
// threads takes the composition of the lower half from its last thread.
template <int G, bool backward, class Function, class Exchange>
__device__ __forceinline__ void ladner_fischer(Function& own, int rank, Exchange& exchange) {
#pragma unroll
    for (int span = 1; span < G; span *= 2) {
        exchange.publish(own);
        const int last = (rank & ~(2 * span - 1)) + span - 1;  // of the lower half
        const bool upper = rank & span;
        if (!Exchange::together && !upper) continue;
        const Function lower = exchange.template of<Function>(backward ? G - 1 - last : last);
        if (upper) own = composed(own, lower);
    }
}

template <class T, int G, int L, bool shuffle>
struct ThreeScans {
    static constexpr int W = shuffle && G > kWarp ? kWarp : G;  // threads whose functions are composed at once
    static constexpr int warps = G / W;                         // that share a system
    static constexpr int elements = !shuffle ? L : warps > 1 ? 2 * L / kWarp : 0;  // equations and functions

    static __device__ __forceinline__ Solution<T> solve(Row<T> first, Row<T> last) {
        if constexpr (shuffle) {
            ByShuffle<T, W> lanes;
            return solve_by(first, last, lanes);
        } else {
            __shared__ T places[2][3][L];
            ByShared<T, G, L> threads{places};
            return solve_by(first, last, threads);
        }
    }

    template <class Exchange>
    static __device__ __forceinline__ Solution<T> solve_by(Row<T> first, Row<T> row, Exchange& exchange) {
        Row<T> next = first_of_next(first, exchange);
        join(row, next);
        const Passed<T> q = pass<false>(Fraction<T>{T{}, row.r, -row.l}, exchange);
        const T k = reciprocal(T{1} - row.l * q.in);
        const Passed<T> y = pass<false>(Linear<T>{-row.l * k, row.d * k}, exchange);
        const T last = pass<true>(Linear<T>{-q.out, y.out}, exchange).out;
        return {y.in - q.in * last, last};
    }

    template <class Exchange>
    static __device__ __forceinline__ Row<T> first_of_next(Row<T> first, Exchange& exchange) {
        const int rank = threadIdx.x % W;
        exchange.publish(first);
        Row<T> next = exchange.template of<Row<T>>(rank + 1);
        if constexpr (warps > 1) {
            __shared__ Row<T> firsts[L / kWarp];
            const int warp = threadIdx.x / kWarp, mine = warp % warps;
            if (rank == 0) firsts[warp] = first;
            __syncthreads();
            if (rank == W - 1) next = firsts[warp - mine + (mine + 1) % warps];
        }
        return next;
    }

    // Sends 0 through the functions of a system's threads, one after the other.
    template <bool backward, class Function, class Exchange>
    static __device__ __forceinline__ Passed<T> pass(Function own, Exchange& exchange) {
        const int place = threadIdx.x % W, rank = backward ? W - 1 - place : place;
        ladner_fischer<W, backward>(own, rank, exchange);
        T base = T{}, out = own.b;
        if constexpr (warps > 1) {
            base = from_warps<backward>(own, rank == W - 1);
            out = own(base);
        }
        exchange.publish(out);
        const T in = exchange.template of<T>(backward ? place + 1 : place + W - 1);
        return {rank > 0 ? in : base, out};
    }

    // What comes out of the warps before. Each leaves one function in shared memory and composes those of all itself.
    template <bool backward, class Function>
    static __device__ __forceinline__ T from_warps(Function whole, bool leaves) {
        __shared__ Function each[L / kWarp];
        const int warp = threadIdx.x / kWarp, mine = warp % warps, other = threadIdx.x % warps;
        if (leaves) each[warp] = whole;
        __syncthreads();
        Function function = each[warp - mine + other];
        ByShuffle<T, warps> leaders;
        ladner_fischer<warps, backward>(function, backward ? warps - 1 - other : other, leaders);
        const T before = of_lane(function.b, backward ? mine + 1 : mine + warps - 1, warps);
        return mine == (backward ? warps - 1 : 0) ? T{} : before;
    }
};

// One thread solves P rows of a system, a block of L threads P L / M systems (M: N up to a power of two).
//   shuffle  exchange within warps by shuffles
//   S        elements of the block in shared memory at a time: P L where rows pass it on their way between
//            memory and registers, else the functions that threads exchange through it
//   blocks   that a multiprocessor is to hold at least, which bounds the registers
// Arrays are aligned to 16 bytes.
template <class T, int N, int P, int L, int r, int S, bool shuffle, Access load, Access store, int blocks,
          int aligned, bool in_place>
__global__ void __launch_bounds__(L, blocks)
    tridiag_lf(const T* __restrict__ a, const T* __restrict__ b, const T* __restrict__ c,
               const T* __restrict__ d, T* __restrict__ x, int batch, RowLayout<5, aligned, in_place> layout) {
    using Here = Shape<T, N, P, L, next_pow2(N), decltype(layout)>;
    using Method = ThreeScans<T, Here::G, L, shuffle>;
    static_assert(r == 2, "every level joins two blocks of threads");
    static_assert(S == (tile_elements<Here>(load, store) ? P * L : Method::elements), "S is one of the amounts above");
    solve_systems<Here, load, store, Method>(a, b, c, d, x, batch, layout);
}
