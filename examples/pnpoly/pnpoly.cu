// Which points lie in a polygon: those from which a ray to the right crosses an odd number of edges.

// x per y of every edge. Rounding is stated, so that every variant finds the same crossings.
__device__ __forceinline__ float slope_of(float2 from, float2 to) {
    return __fdiv_rn(__fsub_rn(to.x, from.x), __fsub_rn(to.y, from.y));
}

template <int threads>
__global__ void __launch_bounds__(threads) slopes(const float2* __restrict__ vertex, float* __restrict__ slope, int vertices) {
    const int i = blockIdx.x * threads + threadIdx.x;
    if (i < vertices) slope[i] = slope_of(vertex[i], vertex[i + 1 == vertices ? 0 : i + 1]);
}

// Whether an edge lies on both sides of the ray.
enum class Between { sides, range };

template <Between between>
__device__ __forceinline__ bool is_between(float y, float from, float to) {
    if (between == Between::range) return fminf(from, to) <= y && y < fmaxf(from, to);
    return (from > y) != (to > y);
}

// Blocks of `threads` threads, each with `points` points; block y of the grid has the y-th problem. `shared` keeps the
// vertices in shared memory; `known` reads slopes that were computed before; `branch` jumps over
// what counts a crossing.
template <int vertices, int threads, int points, Between between, bool shared, bool known, bool branch>
__global__ void __launch_bounds__(threads) inside(const float2* __restrict__ point, const float2* __restrict__ vertex,
                                                  const float* __restrict__ slope, int* __restrict__ result, int n) {
    __shared__ float2 of_block[shared ? vertices : 1];
    if constexpr (shared) {
        for (int i = threadIdx.x; i < vertices; i += threads) of_block[i] = vertex[i];
        __syncthreads();
    }
    point += (size_t)blockIdx.y * n;
    result += (size_t)blockIdx.y * n;
    const int first = blockIdx.x * threads * points + threadIdx.x;
    float2 own[points];
    int crossed[points];
#pragma unroll
    for (int p = 0; p < points; ++p) {
        crossed[p] = 0;
        own[p] = first + p * threads < n ? point[first + p * threads] : make_float2(0.0f, 0.0f);
    }

    float2 from = shared ? of_block[0] : vertex[0];
#pragma unroll 2
    for (int i = 0; i < vertices; ++i) {
        const int next = i + 1 == vertices ? 0 : i + 1;
        const float2 to = shared ? of_block[next] : vertex[next];
        const float per_y = known ? slope[i] : slope_of(from, to);
#pragma unroll
        for (int p = 0; p < points; ++p) {
            const float x = __fmaf_rn(__fsub_rn(own[p].y, from.y), per_y, from.x);
            if (!branch) {
                crossed[p] ^= int(is_between<between>(own[p].y, from.y, to.y)) & int(own[p].x < x);
            } else if (is_between<between>(own[p].y, from.y, to.y) && own[p].x < x) {
                crossed[p] = 1 - crossed[p];
            }
        }
        from = to;
    }
#pragma unroll
    for (int p = 0; p < points; ++p) {
        if (first + p * threads < n) result[first + p * threads] = crossed[p];
    }
}
