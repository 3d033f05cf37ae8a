__global__ void mtran(float* __restrict__ output, const float* __restrict__ input, const int width, const int height)
{
#if LOCAL_MEM == 1
    __shared__ float local_buffer[TILE_SIZE_Y][TILE_SIZE_X + PADD_LOCAL];
#endif
    const int x = blockIdx.x * TILE_SIZE_X + threadIdx.x;
    const int y = blockIdx.y * TILE_SIZE_Y + threadIdx.y;
    if (x < width && y < height) {
#if LOCAL_MEM == 1
        local_buffer[threadIdx.y][threadIdx.x] = input[y * width + x];
        output[x * height + y] = local_buffer[threadIdx.y][threadIdx.x];
#else
        output[x * height + y] = input[y * width + x];
#endif
    }
}
