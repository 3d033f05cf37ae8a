#define TOTAL_X (MDIMC * MWI)

extern "C" __global__ __launch_bounds__(MDIMC * NDIMC) void gemm_fast(
    const int kSizeM, const int kSizeN, const int kSizeK, const float* __restrict__ agm,
    const float* __restrict__ bgm, float* __restrict__ cgm)
{
    const int row = blockIdx.x * MDIMC + threadIdx.x;
    const int col = blockIdx.y * NDIMC + threadIdx.y;
    if (row >= kSizeM || col >= kSizeN) return;
    float acc = 0.0f;
#pragma unroll KWI
    for (int k = 0; k < kSizeK; ++k) acc += agm[row * kSizeK + k] * bgm[k * kSizeN + col];
#if SA == 1
    acc = __fmul_rn(acc, 1.0f);
#endif
    cgm[row * kSizeN + col] = acc;
}
