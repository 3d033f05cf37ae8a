// y = 2 x + 1, and what a candidate of a tuner may do instead. Only the tests use it.
enum Mode { good, far_out_of_bounds, near_out_of_bounds, garbage, loops };

template <int L, int mode>
__global__ void faulty(const float* x, float* y, int count) {
    const int i = blockIdx.x * L + threadIdx.x;
    if (mode == loops) {
        while (*(const volatile float*)x == *(const volatile float*)x) {
        }
    }
    if (i >= count) return;
    y[i] = mode == garbage ? x[i] * 3.0f : 2.0f * x[i] + 1.0f;
    if (mode == far_out_of_bounds) y[(1ll << 38) + i] = 1.0f;
    if (mode == near_out_of_bounds && i == 0) y[count] = 1.0f;
}
