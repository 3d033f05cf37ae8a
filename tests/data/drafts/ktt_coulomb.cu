#if USE_CONSTANT_MEMORY == 1
#define ATOMS_MEMORY __constant__
__constant__ float4 atoms[4096];
#endif

__global__ void directCoulombSum(
#if USE_CONSTANT_MEMORY == 0
    const float4* __restrict__ atomInfo,
#else
    const float4* __restrict__ unused,
#endif
    int numberOfAtoms, float gridSpacing, int gridSize, float* __restrict__ energyGrid)
{
    int xIndex = blockIdx.x * WORK_GROUP_SIZE_X + threadIdx.x;
    int yIndex = blockIdx.y * WORK_GROUP_SIZE_Y + threadIdx.y;
    int zIndex = blockIdx.z * Z_ITERATIONS;
    if (xIndex >= gridSize || yIndex >= gridSize) return;
    for (int i = 0; i < Z_ITERATIONS; i++) {
        float energy = 0.0f;
        for (int j = 0; j < numberOfAtoms; j++) {
#if USE_CONSTANT_MEMORY == 0
            float4 atom = atomInfo[j];
#else
            float4 atom = atoms[j];
#endif
            float dx = gridSpacing * xIndex - atom.x, dy = gridSpacing * yIndex - atom.y;
            float dz = gridSpacing * (zIndex + i) - atom.z;
            energy += atom.w * rsqrtf(dx * dx + dy * dy + dz * dz);
        }
        if (zIndex + i < gridSize)
            energyGrid[(zIndex + i) * gridSize * gridSize + yIndex * gridSize + xIndex] += energy;
    }
}
