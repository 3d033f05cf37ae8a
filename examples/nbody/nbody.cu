// Accelerations of n bodies (x, y, z, mass) by the gravity of all. The bodies come in tiles through shared memory;
// every thread has `bodies` of them, and `unroll` steps of its loop under way.
__device__ __forceinline__ void attract(float3& a, float4 body, float4 other)
{
    const float x = other.x - body.x, y = other.y - body.y, z = other.z - body.z;
    const float inverse = rsqrtf(x * x + y * y + z * z + 0.01f);  // softened
    const float force = other.w * inverse * inverse * inverse;
    a.x += force * x, a.y += force * y, a.z += force * z;
}

template <int block_size_x, int bodies, int unroll>
__global__ void nbody(const float4* __restrict__ body, float3* __restrict__ acceleration, int n)
{
    __shared__ float4 tile[block_size_x];
    const int first = blockIdx.x * block_size_x * bodies + threadIdx.x;
    float4 mine[bodies];
    float3 a[bodies] = {};
#pragma unroll
    for (int k = 0; k < bodies; ++k) mine[k] = body[(first + k * block_size_x) % n];
    for (int start = 0; start < n; start += block_size_x) {
        __syncthreads();
        tile[threadIdx.x] = start + threadIdx.x < n ? body[start + threadIdx.x] : float4{};
        __syncthreads();
#pragma unroll unroll
        for (int j = 0; j < block_size_x; ++j)
#pragma unroll
            for (int k = 0; k < bodies; ++k) attract(a[k], mine[k], tile[j]);
    }
#pragma unroll
    for (int k = 0; k < bodies; ++k)
        if (first + k * block_size_x < n) acceleration[first + k * block_size_x] = a[k];
}

__global__ void naive(const float4* __restrict__ body, float3* __restrict__ acceleration, int n)
{
    const int i = blockIdx.x * blockDim.x + threadIdx.x;
    float3 a = {};
    for (int j = 0; i < n && j < n; ++j) attract(a, body[i], body[j]);
    if (i < n) acceleration[i] = a;
}
