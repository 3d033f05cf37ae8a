// Which of n points lie in a polygon: those from which a ray to the right crosses an odd number of its edges.
// The corners lie in constant memory. Every thread has `points` points, and `unroll` edges under way.
constexpr int edges = 600;
__constant__ float2 corner[edges];

template <int block_size_x, int points, int unroll>
__global__ void pnpoly(const float2* __restrict__ point, int* __restrict__ inside, int n)
{
    const int first = blockIdx.x * block_size_x * points + threadIdx.x;
    float2 p[points];
    bool odd[points] = {};
#pragma unroll
    for (int k = 0; k < points; ++k) p[k] = point[(first + k * block_size_x) % n];
    float2 from = corner[edges - 1];
#pragma unroll unroll
    for (int edge = 0; edge < edges; ++edge) {
        const float2 to = corner[edge];
        const float across = to.x - from.x, up = to.y - from.y;
#pragma unroll
        for (int k = 0; k < points; ++k) {
            const bool meets = (from.y > p[k].y) != (to.y > p[k].y);
            const bool left = ((p[k].x - from.x) * up < across * (p[k].y - from.y)) == (up > 0.0f);
            odd[k] ^= meets && left;
        }
        from = to;
    }
#pragma unroll
    for (int k = 0; k < points; ++k)
        if (first + k * block_size_x < n) inside[first + k * block_size_x] = odd[k];
}
