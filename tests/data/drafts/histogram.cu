typedef unsigned int uint;
#define BINS 256

__global__ void histogram256(uint *d_Histogram, const uint *d_Data, uint dataCount)
{
    __shared__ uint s_Hist[BINS];
    for (uint i = threadIdx.x; i < BINS; i += blockDim.x) s_Hist[i] = 0;
    __syncthreads();
    for (uint pos = blockIdx.x * blockDim.x + threadIdx.x; pos < dataCount; pos += blockDim.x * gridDim.x)
        atomicAdd(&s_Hist[d_Data[pos] & 0xFFU], 1u);
    __syncthreads();
    for (uint i = threadIdx.x; i < BINS; i += blockDim.x) atomicAdd(&d_Histogram[i], s_Hist[i]);
}

static const uint PARTIAL_COUNT = 240;

void histogramGPU(uint byteCount)
{
    uint *d_Histogram, *d_Data;
    cudaMalloc((void **)&d_Histogram, BINS * sizeof(uint));
    cudaMalloc((void **)&d_Data, byteCount);
    histogram256<<<PARTIAL_COUNT, 192>>>(d_Histogram, d_Data, byteCount / sizeof(uint));
}
