#define border_height ((filter_height / 2) * 2)
#define border_width ((filter_width / 2) * 2)
#define input_width (image_width + border_width)

__constant__ float d_filter[33 * 33];

__global__ void convolution(float *output, float *input) {
    int x = blockIdx.x * block_size_x * tile_size_x + threadIdx.x;
    int y = blockIdx.y * block_size_y * tile_size_y + threadIdx.y;
    for (int yi = 0; yi < tile_size_y; yi++) {
        for (int xi = 0; xi < tile_size_x; xi++) {
            int col = x + xi * block_size_x, row = y + yi * block_size_y;
            if (col < image_width && row < image_height) {
                float sum = 0.0f;
                for (int j = 0; j < filter_height; j++)
                    for (int i = 0; i < filter_width; i++)
                        #if use_padding == 1
                        sum += input[(row + j) * input_width + col + i] * d_filter[j * filter_width + i];
                        #else
                        sum += __ldg(&input[(row + j) * input_width + col + i]) * d_filter[j * filter_width + i];
                        #endif
                output[row * image_width + col] = sum;
            }
        }
    }
}
