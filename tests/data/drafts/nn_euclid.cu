#include <float.h>
typedef struct latLong { float lat; float lng; } LatLong;
#define DEFAULT_THREADS_PER_BLOCK 256
#define ceilDiv(a, b) ((a + b - 1) / b)

__global__ void euclid(LatLong *d_locations, float *d_distances, int numRecords, float lat, float lng)
{
    int globalId = blockDim.x * (gridDim.x * blockIdx.y + blockIdx.x) + threadIdx.x;
    LatLong *latLong = d_locations + globalId;
    if (globalId < numRecords) {
        float *dist = d_distances + globalId;
        *dist = sqrtf((lat - latLong->lat) * (lat - latLong->lat) + (lng - latLong->lng) * (lng - latLong->lng));
    }
}

int main(int argc, char *argv[])
{
    float lat = 30.f, lng = 90.f;
    LatLong *d_locations;
    float *d_distances;
    int numRecords = atoi(argv[1]);
    int threadsPerBlock = DEFAULT_THREADS_PER_BLOCK;
    int blocks = ceilDiv(numRecords, threadsPerBlock);
    cudaMalloc((void **)&d_locations, sizeof(LatLong) * numRecords);
    cudaMalloc((void **)&d_distances, sizeof(float) * numRecords);
    euclid<<<dim3(blocks, 1), threadsPerBlock>>>(d_locations, d_distances, numRecords, lat, lng);
}
