// The calls of the CUDA driver that examples/input-adaptive/main.cpp makes, on the host. A module is a file that must
// exist, and holds its functions' names; a launch is y = A x of the rows that its blocks cover by the version's name.
#pragma once

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <iterator>
#include <string>

enum CUresult { CUDA_SUCCESS, CUDA_ERROR_FILE_NOT_FOUND, CUDA_ERROR_NOT_FOUND, CUDA_ERROR_INVALID_VALUE };
using CUdevice = int;
using CUcontext = int;
using CUdeviceptr = unsigned long long;
using CUmodule = std::string*;
struct CUfunction_st {
    unsigned threads, rows;
};
using CUfunction = CUfunction_st*;

inline CUresult cuGetErrorString(CUresult result, const char** told)
{
    static const char* const names[] = {"no error", "file not found", "not found", "invalid value"};
    *told = names[result];
    return CUDA_SUCCESS;
}
inline CUresult cuInit(unsigned) { return CUDA_SUCCESS; }
inline CUresult cuDeviceGet(CUdevice* device, int) { return *device = 0, CUDA_SUCCESS; }
inline CUresult cuDevicePrimaryCtxRetain(CUcontext* context, CUdevice) { return *context = 0, CUDA_SUCCESS; }
inline CUresult cuCtxSetCurrent(CUcontext) { return CUDA_SUCCESS; }
inline CUresult cuMemAlloc(CUdeviceptr* memory, size_t bytes)
{
    *memory = reinterpret_cast<CUdeviceptr>(std::malloc(bytes));
    return CUDA_SUCCESS;
}
inline CUresult cuMemFree(CUdeviceptr memory) { return std::free(reinterpret_cast<void*>(memory)), CUDA_SUCCESS; }
inline CUresult cuMemcpyHtoD(CUdeviceptr to, const void* from, size_t bytes)
{
    return std::memcpy(reinterpret_cast<void*>(to), from, bytes), CUDA_SUCCESS;
}
inline CUresult cuMemcpyDtoH(void* to, CUdeviceptr from, size_t bytes)
{
    return std::memcpy(to, reinterpret_cast<const void*>(from), bytes), CUDA_SUCCESS;
}
inline CUresult cuModuleLoad(CUmodule* module, const char* path)
{
    std::ifstream file(path, std::ios::binary);
    if (!file) return CUDA_ERROR_FILE_NOT_FOUND;
    *module = new std::string(std::istreambuf_iterator<char>(file), {});
    return CUDA_SUCCESS;
}
inline CUresult cuModuleGetFunction(CUfunction* function, CUmodule module, const char* name)
{
    unsigned B = 0, T = 0;
    if (module->find(name) == std::string::npos) return CUDA_ERROR_NOT_FOUND;
    if (std::sscanf(name, "_Z5mvmulILi%uELi%uEE", &B, &T) != 2) return CUDA_ERROR_NOT_FOUND;
    *function = new CUfunction_st{B, B / T};
    return CUDA_SUCCESS;
}
inline CUresult cuLaunchKernel(CUfunction function, unsigned x, unsigned, unsigned, unsigned threads, unsigned, unsigned,
                               unsigned, void*, void** arguments, void**)
{
    if (threads != function->threads) return CUDA_ERROR_INVALID_VALUE;
    const auto array = [&](int place) { return reinterpret_cast<float*>(*static_cast<CUdeviceptr*>(arguments[place])); };
    const int H = *static_cast<int*>(arguments[3]), W = *static_cast<int*>(arguments[4]);
    const float *A = array(0), *v = array(1);
    for (unsigned row = 0; row < x * function->rows && row < static_cast<unsigned>(H); ++row) {
        double sum = 0.0;
        for (int k = 0; k < W; ++k) sum += static_cast<double>(A[static_cast<size_t>(row) * W + k]) * v[k];
        array(2)[row] = static_cast<float>(sum);
    }
    return CUDA_SUCCESS;
}
