namespace ops {
namespace detail {
template <typename T> __device__ T twice(T x) { return x + x; }
}

template <typename scalar_t>
__global__ void double_kernel(const scalar_t* __restrict__ in, scalar_t* __restrict__ out, size_t size) {
    const size_t index = static_cast<size_t>(blockIdx.x) * blockDim.x + threadIdx.x;
    if (index < size) out[index] = detail::twice(in[index]);
}

void launch(const float* in, float* out, size_t size) {
    constexpr int threads = 128;
    const int blocks = static_cast<int>((size + threads - 1) / threads);
    double_kernel<float><<<blocks, threads>>>(in, out, size);
}
}  // namespace ops
