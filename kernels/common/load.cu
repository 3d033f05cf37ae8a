// A steady load for the calibration of power sensors: every multiprocessor multiplies and adds, without touching
// memory, until so many nanoseconds of the GPU's own clock have passed. Arithmetic alone keeps below the power
// limit of the boards this was tried on, where the GPU would lower its clock and power would not be square.

constexpr int CHAINS = 8;   // independent multiply-adds of a thread, to hide their latency
constexpr int STRETCH = 64; // steps between two looks at the clock

__device__ unsigned long long now_ns() {
    unsigned long long ns;
    asm volatile("mov.u64 %0, %globaltimer;" : "=l"(ns));
    return ns;
}

extern "C" __global__ void __launch_bounds__(256) load(unsigned long long duration_ns) {
    const unsigned long long begin = now_ns();
    float x[CHAINS];
#pragma unroll
    for (int i = 0; i < CHAINS; i++) x[i] = static_cast<float>(threadIdx.x + i);
    do {
#pragma unroll
        for (int step = 0; step < STRETCH; step++) {
#pragma unroll
            for (int i = 0; i < CHAINS; i++) x[i] = x[i] * 0.999f + 0.5f;
        }
    } while (now_ns() - begin < duration_ns);
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < CHAINS; i++) sum += x[i];
    if (sum < 0.0f) __trap(); // never: all are positive. But without a use the compiler would drop the work
}
