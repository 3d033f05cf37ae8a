// Multiplies matrices of the sizes named by vectors, each by the version that the selector picks, and checks the products.
//
//     main H W [H W]...
//
// It finds mvmul.h, and the folder build of its cubins, where `tuner export` has put them. Links with the CUDA driver
// alone: g++ -O2 -o main main.cpp -lcuda

#include <cuda.h>

#include <cmath>
#include <cstdio>
#include <cstdlib>
#include <string>
#include <vector>

#include "mvmul.h"

static void check(CUresult result, const char* what)
{
    if (result == CUDA_SUCCESS) return;
    const char* told = nullptr;
    cuGetErrorString(result, &told);
    std::fprintf(stderr, "%s: %s\n", what, told ? told : "unknown error");
    std::exit(1);
}

struct Version {
    CUfunction function = nullptr;
    unsigned threads = 0, rows = 0;  // of a block

    explicit Version(int number)
    {
        const std::string path = "build/mvmul-" + std::to_string(number) + "-mvmul.cubin";
        CUmodule module;
        check(cuModuleLoad(&module, path.c_str()), path.c_str());
        check(cuModuleGetFunction(&function, module, mvmul_function_mvmul[number]), mvmul_function_mvmul[number]);
        threads = static_cast<unsigned>(mvmul_B[number]);
        rows = static_cast<unsigned>(mvmul_B[number] / mvmul_T[number]);
    }
};

static double largest_error(int H, int W)
{
    const size_t count = static_cast<size_t>(H) * W;
    std::vector<float> A(count), x(W), y(H);
    for (size_t i = 0; i < count; ++i) A[i] = static_cast<float>(i * 2654435761u % 1024) / 1024.0f;
    for (int k = 0; k < W; ++k) x[k] = static_cast<float>(k % 7) / 7.0f;

    CUdeviceptr a, v, out;
    check(cuMemAlloc(&a, sizeof(float) * count), "memory for A");
    check(cuMemAlloc(&v, sizeof(float) * W), "memory for x");
    check(cuMemAlloc(&out, sizeof(float) * H), "memory for y");
    check(cuMemcpyHtoD(a, A.data(), sizeof(float) * count), "copy of A");
    check(cuMemcpyHtoD(v, x.data(), sizeof(float) * W), "copy of x");

    const int picked = mvmul_select(H, W);
    const Version version(picked);
    void* arguments[] = {&a, &v, &out, &H, &W};
    const unsigned blocks = (static_cast<unsigned>(H) + version.rows - 1) / version.rows;
    check(cuLaunchKernel(version.function, blocks, 1, 1, version.threads, 1, 1, 0, nullptr, arguments, nullptr),
          "launch");
    check(cuMemcpyDtoH(y.data(), out, sizeof(float) * H), "copy of y");
    for (CUdeviceptr memory : {a, v, out}) check(cuMemFree(memory), "freeing memory");

    double worst = 0.0;
    for (int row = 0; row < H; ++row) {
        double sum = 0.0;
        for (int k = 0; k < W; ++k) sum += static_cast<double>(A[static_cast<size_t>(row) * W + k]) * x[k];
        worst = std::fmax(worst, std::fabs(y[row] - sum) / std::fmax(sum, 1.0));
    }
    std::printf("%d x %d: version %d (B=%d, T=%d), largest relative error %.1e\n", H, W, picked, mvmul_B[picked],
                mvmul_T[picked], worst);
    return worst;
}

int main(int count, char** words)
{
    CUdevice device;
    CUcontext context;
    check(cuInit(0), "driver");
    check(cuDeviceGet(&device, 0), "GPU 0");
    check(cuDevicePrimaryCtxRetain(&context, device), "context");
    check(cuCtxSetCurrent(context), "context");
    double worst = 0.0;
    for (int i = 1; i + 1 < count; i += 2)
        worst = std::fmax(worst, largest_error(std::atoi(words[i]), std::atoi(words[i + 1])));
    return worst < 1e-4 ? 0 : 1;
}
