// Transforms that a thread-block cluster holds in its registers: forward or inverse complex transforms of the rows of
// x, shape (batch, N), out of place, in one pass over device memory. Inverse ones are scaled by 1 / N.
//
// N = N1 N2, and a problem is a matrix of N1 rows and N2 columns. Each of the cluster's B blocks transforms N2 / B
// columns, sends every other block its share of them through distributed shared memory, multiplies by the twiddle
// factors exp(-2 pi i k1 n2 / N) and transforms N1 / B rows (the four-step method; Bailey, "FFTs in External or
// Hierarchical Memory"). A thread holds P points from the load to the store.
//
// A block's shared memory has a room that receives; the blocks meet before it is written, and before it is read. With
// scratch = 0 columns are exchanged in that room too, so the blocks first meet after their columns are done. With 4
// bytes a point of their own (real parts and then imaginary parts), that all have started is enough, and they have
// long before anyone waits for it.
//
// A cluster has one problem: the grid has B blocks for each.
//
// Tunables: B; N1; P (N / (B P) threads per block); r largest radix; order of the radices; scratch; wide: a remote
// write has 16 bytes instead of 8, after neighbours traded; async: a block waits for its bytes instead of for the
// others; blocks asked of the compiler per multiprocessor.
#include "block_fft.cuh"
#include "clusters.cuh"

template <int N_, int N1_, int P_, int B_, int r, Order order, int scratch_>
struct Shape {
    static constexpr int N = N_, N1 = N1_, N2 = N / N1, P = P_, B = B_, scratch = scratch_;
    static constexpr int threads = N / (B * P);
    static constexpr int columns = N2 / B, rows = N1 / B;  // of a block
    static constexpr int G1 = N1 / P, G2 = N2 / P;         // threads of a column, of a row
    using Word = typename WordOf<scratch == 0>::type;
    using Columns = BlockFft<N1, P, Ordered<N1, r, order>, Word, Padding::stage, columns>;
    using Rows = BlockFft<N2, P, Ordered<N2, r, order>, float2, Padding::none, rows>;
    static constexpr int R = Rows::Stages::at(0);

    // Points from a row to the next. Where it is read along the row, lanes that reach into the next row find it in
    // the banks they left free; where it is read across, neighbouring rows start in different banks.
    static constexpr int lines = N2 + N2 / larger(16, R);
    static constexpr int along = G2 < 16 ? G2 : 0;
    static constexpr int across = larger(1, 16 / rows) + along;
    static constexpr int received = N2 + along;
    static constexpr int turned_pitch = lines + ((across - lines) & 15);

    static constexpr int pitch = N2 + N2 / 16 + 16;
    static constexpr int room = larger(rows * pitch, scratch ? 0 : columns * Columns::pitch);
    static constexpr int counter_bytes = 16;  // keeps the room aligned
    static constexpr int scratch_place = counter_bytes + (scratch ? room * 8 : 0);
    static constexpr int bytes = counter_bytes + room * 8 + columns * Columns::pitch * scratch;

    static_assert(scratch == 0 || scratch == 4, "whole numbers fit in the room, parts beside it");
    static_assert(columns >= 2 && rows >= 1 && G1 >= 1 && G2 >= 1 && threads <= 1024, "every thread has its points");
    static_assert(Rows::Stages::count > 1, "rows change hands after their first stage");
    static_assert(received <= pitch && turned_pitch <= pitch && Rows::pitch * rows <= room, "all fit in the room");
};

// v[j], frequency g + j G1 of a column of the problem, goes to the block that has this row.
template <class Here, bool wide, bool counted>
__device__ __forceinline__ void send(const float2 (&v)[Here::P], unsigned g, unsigned column, unsigned own,
                                     char* part) {
    constexpr int P = Here::P, G1 = Here::G1, rows = Here::rows, span = wide ? 2 : 1;
    const bool odd = wide && column % 2;
    // Neighbours in a row trade: one gets both points of an even j, the other both of the odd j behind it.
    const unsigned k1 = g + (odd ? G1 : 0), rank = span * G1 > rows ? k1 / rows : 0;
    const unsigned place = ((k1 - rank * rows) * Here::received + column / span * span) * 8;
#pragma unroll
    for (int j = 0; j < P; j += span) {
        const Remote there = in_block<Here::bytes>(part, own, rank + j * G1 / rows);
        const Remote point = there + (Here::counter_bytes + j * G1 % rows * Here::received * 8) + place;
        if constexpr (wide) {
            const float2 kept = odd ? v[j + 1] : v[j], given = odd ? v[j] : v[j + 1];
            const float real = __shfl_xor_sync(kAllLanes, given.x, 1);
            const float imaginary = __shfl_xor_sync(kAllLanes, given.y, 1);
            const float2 got = make_float2(real, imaginary);
            const float2 left = odd ? got : kept, right = odd ? kept : got;
            put<counted>(point, make_float4(left.x, left.y, right.x, right.y), there);
        } else {
            put<counted>(point, v[j], there);
        }
    }
}

// The first `known` of P numbers in geometric progression become all; power is the ratio's power `known`.
template <int P, int known = 1>
__device__ __forceinline__ void extend(float2 (&numbers)[P], float2 power, float2 fourth) {
    if constexpr (known < P) {
        if (known == 4) power = fourth;
#pragma unroll
        for (int j = 0; j < known; ++j) numbers[known + j] = numbers[j] * power;
        extend<P, 2 * known>(numbers, power * power, fourth);
    }
}

// factors[j] = exp(-2 pi i k1 (g + j G2) / N). All angles are exact.
template <class Here>
__device__ __forceinline__ void twiddles(float2 (&factors)[Here::P], unsigned k1, unsigned g) {
    constexpr float half_turns = -2.0f / Here::N;
    const float step = half_turns * float(int(k1 * Here::G2));
    float2 ratio, fourth;
    sincospif(half_turns * float(int(k1 * g)), &factors[0].y, &factors[0].x);
    sincospif(step, &ratio.y, &ratio.x);
    sincospif(4 * step, &fourth.y, &fourth.x);
    extend(factors, ratio, fourth);
}

// The results of the first stage of rows, from lanes along a row to lanes across the rows
template <class Here>
__device__ __forceinline__ void turn(float2 (&v)[Here::P], unsigned t, float2* room) {
    constexpr int P = Here::P, R = Here::R, G = Here::G2;
    auto place = [](unsigned o) { return o + o / larger(16, R); };  // additive where no bit is common
    float2* const to = room + t / G * Here::turned_pitch + place(t % G * R);
    const float2* const from = room + t % Here::rows * Here::turned_pitch + place(t / Here::rows);
    __syncthreads();
#pragma unroll
    for (int i = 0; i < P / R; ++i) {
#pragma unroll
        for (int q = 0; q < R; ++q) to[place(i * G * R + q)] = v[i + q * (P / R)];
    }
    __syncthreads();
#pragma unroll
    for (int j = 0; j < P; ++j) v[j] = from[place(j * G)];
}

// Columns of this block, from device memory to the rooms of the blocks that have their rows
template <class Here, bool wide, bool async, bool inverse>
__device__ __forceinline__ void columns(const float2* __restrict__ x, unsigned t, unsigned own, char* part) {
    using Columns = typename Here::Columns;
    constexpr int C = Here::columns;
    const unsigned g = t / C, column = own * C + t % C;
    const float2* const from = x + g * Here::N2 + column;
    float2 v[Here::P];
#pragma unroll
    for (int j = 0; j < Here::P; ++j) v[j] = swapped<inverse>(from[j * Here::G1 * Here::N2]);
    block_fft<Columns>(v, g, reinterpret_cast<typename Columns::Word*>(part + Here::scratch_place) + t % C, false);
    if (!Here::scratch) cluster_arrive<true>();
    cluster_wait();
    send<Here, wide, async>(v, g, column, own, part);
}

template <int N, int N1, int P, int B, int r, Order order, int scratch, bool wide, bool async, bool inverse, int blocks>
__global__ void __cluster_dims__(B, 1, 1) __launch_bounds__(N / (B * P), blocks)
    fft_cluster(const float2* __restrict__ x, float2* __restrict__ y) {
    using Here = Shape<N, N1, P, B, r, order, scratch>;
    constexpr int G2 = Here::G2, C = Here::rows;
    constexpr float scale = inverse ? 1.0f / N : 1.0f;
    extern __shared__ float4 memory[];  // the barrier, the room that receives, scratch
    const unsigned t = thread_of_block<Here::threads>(), own = block_of_cluster<Here::threads>();
    char* const part = part_of<Here::bytes>(reinterpret_cast<char*>(memory), own);
    unsigned long long* const barrier = reinterpret_cast<unsigned long long*>(part);
    float2* const room = reinterpret_cast<float2*>(part + Here::counter_bytes);

    if (async && t == 0) {
        make_barrier(barrier);
        expect(barrier, N / B * sizeof(float2));
    }
    __syncwarp();  // the barriers of a cluster want whole warps
    if (scratch) cluster_arrive<false>();
    const long long problem = this_cluster<B>() * (long long)N;
    columns<Here, wide, async, inverse>(x + problem, t, own, part);
    if (!async) cluster_arrive<true>();
    float2 v[P];
    {
        const unsigned g = t % G2, row = t / G2;
        float2 factors[P];
        twiddles<Here>(factors, own * C + row, g);  // while the others still write
        if (async)
            await(barrier, 0);
        else
            cluster_wait();
        const float2* const from = room + row * Here::received + g;
#pragma unroll
        for (int j = 0; j < P; ++j) v[j] = from[j * G2] * factors[j];
        butterflies<P, G2, 1, Here::R>(v, g);
    }
    turn<Here>(v, t, room);
    const unsigned g = t / C, row = t % C;
    block_fft<typename Here::Rows, 1, Here::R>(v, g, room + row, true);
    float2* const to = y + problem + own * C + row + g * N1;
#pragma unroll
    for (int j = 0; j < P; ++j) {
        const float2 result = swapped<inverse>(v[j]);
        to[j * G2 * N1] = make_float2(result.x * scale, result.y * scale);
    }
}
