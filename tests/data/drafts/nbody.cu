#include <math.h>
#include <stdio.h>
#define BLOCK_SIZE 256
#define SOFTENING 1e-9f

typedef struct { float x, y, z, vx, vy, vz; } Body;

void randomizeBodies(float *data, int n) {
    for (int i = 0; i < n; i++) data[i] = 2.0f * (rand() / (float)RAND_MAX) - 1.0f;
}

__global__ void bodyForce(Body *p, float dt, int n) {
    int i = blockDim.x * blockIdx.x + threadIdx.x;
    if (i < n) {
        float Fx = 0.0f, Fy = 0.0f, Fz = 0.0f;
        for (int j = 0; j < n; j++) {
            float dx = p[j].x - p[i].x, dy = p[j].y - p[i].y, dz = p[j].z - p[i].z;
            float inv = rsqrtf(dx * dx + dy * dy + dz * dz + SOFTENING);
            float inv3 = inv * inv * inv;
            Fx += dx * inv3; Fy += dy * inv3; Fz += dz * inv3;
        }
        p[i].vx += dt * Fx; p[i].vy += dt * Fy; p[i].vz += dt * Fz;
    }
}

int main(const int argc, const char **argv) {
    int nBodies = 30000;
    if (argc > 1) nBodies = atoi(argv[1]);
    const float dt = 0.01f;
    int bytes = nBodies * sizeof(Body);
    float *buf = (float *)malloc(bytes);
    randomizeBodies(buf, 6 * nBodies);
    float *d_buf;
    cudaMalloc(&d_buf, bytes);
    Body *d_p = (Body *)d_buf;
    int nBlocks = (nBodies + BLOCK_SIZE - 1) / BLOCK_SIZE;
    bodyForce<<<nBlocks, BLOCK_SIZE>>>(d_p, dt, nBodies);
}
