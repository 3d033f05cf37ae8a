// Half precision, as far as kernels of tests use it; g++ rounds every sum, as a GPU does.
#pragma once

using __half = _Float16;
struct __half2 {
    __half x, y;
};
inline __half2 __hadd2(__half2 a, __half2 b) { return {__half(a.x + b.x), __half(a.y + b.y)}; }
