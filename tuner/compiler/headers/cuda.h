// Stands in for the driver's <cuda.h>, whose functions are of the host: the types that kernels take.
#pragma once
#ifndef CUDA_VERSION
#define CUDA_VERSION (__CUDACC_VER_MAJOR__ * 1000 + __CUDACC_VER_MINOR__ * 10)
#endif
typedef struct CUtensorMap_st {
    alignas(64) unsigned long long __opaque[16];
} CUtensorMap;
typedef unsigned long long CUdeviceptr;
typedef unsigned long long CUtexObject;
typedef unsigned long long CUsurfObject;
