// a = b + s * c: P numbers per thread, a block apart, which the compiler unrolls.
#pragma tuner toml kernel.options = ["--std=c++17", "--ftz=true"]
#pragma tuner toml work = { bytes = "12 * N", operations = "2 * N", rate = "GB/s", rate_units = "12 * N" }
#pragma tuner problem(N = [33554432, 5000])
#pragma tuner input b: float32[N]
#pragma tuner input c: float32[N]
#pragma tuner output a: float32[N]
#pragma tuner value s: float32 = 1.5
#pragma tuner value n: int32 = N
#pragma tuner check a = b + 1.5 * c
#pragma tuner constraint factor <= P
#pragma tuner erange 64, 1024, 2
#define L 256
#pragma tuner values 1, 2, 4, 8, 16
#define P 1
#pragma tuner launch grid(ceil_div(N, L * P)) block(L)
extern "C" __global__ void triad(const float* __restrict__ b, const float* __restrict__ c, float* __restrict__ a,
                                 float s, int n) {
    #pragma tuner unroll factor: values 1, 2, 4, 8
    for (int p = 0; p < P; ++p) {
        const int i = (blockIdx.x * P + p) * L + threadIdx.x;
        if (i < n) a[i] = b[i] + s * c[i];
    }
}
