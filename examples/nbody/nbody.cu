// Accelerations of n bodies by the gravity of all: sums over all pairs. A body is x, y, z and mass.

constexpr float softening = 0.01f;

__device__ __forceinline__ void attract(float3& a, float4 body, float4 other) {
    const float x = other.x - body.x, y = other.y - body.y, z = other.z - body.z;
    const float inverse = rsqrtf(x * x + y * y + z * z + softening);
    const float strength = fabsf(other.w) * inverse * inverse * inverse;
    a.x += strength * x;
    a.y += strength * y;
    a.z += strength * z;
}

// Blocks of threads x split threads. A thread has `bodies` bodies, and one of `split` parts of what attracts them;
// n is a multiple of threads * bodies and of threads * split. `tiled` takes what attracts through shared memory.
// Block y of the grid has the y-th problem.
template <int threads, int split, int bodies, int unroll, bool tiled>
__global__ void __launch_bounds__(threads * split)
    accelerations(const float4* __restrict__ body, float4* __restrict__ acceleration, int n) {
    body += (size_t)blockIdx.y * n;
    acceleration += (size_t)blockIdx.y * n;
    const int first = blockIdx.x * threads * bodies + threadIdx.x;
    float4 own[bodies];
    float3 sum[bodies];
#pragma unroll
    for (int b = 0; b < bodies; ++b) {
        own[b] = body[first + b * threads];
        sum[b] = make_float3(0.0f, 0.0f, 0.0f);
    }

    const int part = n / split, begin = threadIdx.y * part;
    if constexpr (tiled) {
        __shared__ float4 tile[split][threads];
        for (int start = begin; start < begin + part; start += threads) {
            __syncthreads();
            tile[threadIdx.y][threadIdx.x] = body[start + threadIdx.x];
            __syncthreads();
#pragma unroll unroll
            for (int i = 0; i < threads; ++i) {
                const float4 other = tile[threadIdx.y][i];
#pragma unroll
                for (int b = 0; b < bodies; ++b) attract(sum[b], own[b], other);
            }
        }
    } else {
#pragma unroll unroll
        for (int i = begin; i < begin + part; ++i) {
            const float4 other = __ldg(body + i);
#pragma unroll
            for (int b = 0; b < bodies; ++b) attract(sum[b], own[b], other);
        }
    }

    if constexpr (split > 1) {
        __shared__ float3 parts[split][threads];
#pragma unroll
        for (int b = 0; b < bodies; ++b) {
            __syncthreads();
            parts[threadIdx.y][threadIdx.x] = sum[b];
            __syncthreads();
            if (threadIdx.y == 0) {
#pragma unroll
                for (int s = 1; s < split; ++s) {
                    sum[b].x += parts[s][threadIdx.x].x;
                    sum[b].y += parts[s][threadIdx.x].y;
                    sum[b].z += parts[s][threadIdx.x].z;
                }
            }
        }
    }
    if (threadIdx.y == 0) {
#pragma unroll
        for (int b = 0; b < bodies; ++b) {
            acceleration[first + b * threads] = make_float4(sum[b].x, sum[b].y, sum[b].z, 0.0f);
        }
    }
}
