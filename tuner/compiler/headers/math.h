// Stands in for <math.h>: constants, and functions of integers, which NVRTC finds ambiguous.
//
// Functions of floating-point numbers are NVRTC's own; a template is chosen only where none of them fits
// better. Of a float and an integer fmax, fmod, hypot and atan2 are double then, as C++ says; NVRTC's pow stays
// float.
#pragma once
#ifndef INFINITY
#define INFINITY (__builtin_bit_cast(float, 0x7f800000))
#endif
#ifndef NAN
#define NAN (__builtin_bit_cast(float, 0x7fc00000))
#endif
#ifndef HUGE_VAL
#define HUGE_VAL (__builtin_bit_cast(double, 0x7ff0000000000000))
#define HUGE_VALF (__builtin_bit_cast(float, 0x7f800000))
#endif
#ifndef M_PI
#define M_PI 3.14159265358979323846
#endif
#ifndef M_E
#define M_E 2.7182818284590452354
#define M_LOG2E 1.4426950408889634074
#define M_LOG10E 0.43429448190325182765
#define M_LN2 0.69314718055994530942
#define M_LN10 2.30258509299404568402
#define M_PI_2 1.57079632679489661923
#define M_PI_4 0.78539816339744830962
#define M_1_PI 0.31830988618379067154
#define M_2_PI 0.63661977236758134308
#define M_2_SQRTPI 1.12837916709551257390
#define M_SQRT2 1.41421356237309504880
#define M_SQRT1_2 0.70710678118654752440
#endif
typedef float float_t;
typedef double double_t;

namespace __tuner_headers {
template <class _Tp>
struct __number {};
template <class _Tp>
struct __integer {};
#define __TUNER_INTEGER(__type)                             \
    template <>                                             \
    struct __number<__type> {                               \
        typedef double __real;                              \
    };                                                      \
    template <>                                             \
    struct __integer<__type> {                              \
        typedef double __real;                              \
        typedef bool __truth;                               \
    };
__TUNER_INTEGER(bool)
__TUNER_INTEGER(char)
__TUNER_INTEGER(signed char)
__TUNER_INTEGER(unsigned char)
__TUNER_INTEGER(short)
__TUNER_INTEGER(unsigned short)
__TUNER_INTEGER(int)
__TUNER_INTEGER(unsigned int)
__TUNER_INTEGER(long)
__TUNER_INTEGER(unsigned long)
__TUNER_INTEGER(long long)
__TUNER_INTEGER(unsigned long long)
#undef __TUNER_INTEGER
template <>
struct __number<float> {
    typedef double __real;
};
template <>
struct __number<double> {
    typedef double __real;
};
}  // namespace __tuner_headers

#define __TUNER_ONE(__name)                                                                              \
    template <class _Tp>                                                                                 \
    __device__ __forceinline__ typename __tuner_headers::__integer<_Tp>::__real __name(_Tp __x) {        \
        return ::__name(static_cast<double>(__x));                                                       \
    }
#define __TUNER_TWO(__name)                                                                              \
    template <class _Tp, class _Up>                                                                      \
    __device__ __forceinline__ typename __tuner_headers::__number<_Tp>::__real __name(                   \
        _Tp __x, _Up __y, typename __tuner_headers::__number<_Up>::__real* = nullptr) {                  \
        return ::__name(static_cast<double>(__x), static_cast<double>(__y));                             \
    }
#define __TUNER_ASKS(__name)                                                                             \
    template <class _Tp>                                                                                 \
    __device__ __forceinline__ typename __tuner_headers::__integer<_Tp>::__truth __name(_Tp __x) {       \
        return ::__name(static_cast<double>(__x));                                                       \
    }
__TUNER_ONE(acos)
__TUNER_ONE(acosh)
__TUNER_ONE(asin)
__TUNER_ONE(asinh)
__TUNER_ONE(atan)
__TUNER_ONE(atanh)
__TUNER_ONE(cbrt)
__TUNER_ONE(ceil)
__TUNER_ONE(cos)
__TUNER_ONE(cosh)
__TUNER_ONE(erf)
__TUNER_ONE(erfc)
__TUNER_ONE(exp)
__TUNER_ONE(exp2)
__TUNER_ONE(expm1)
__TUNER_ONE(fabs)
__TUNER_ONE(floor)
__TUNER_ONE(lgamma)
__TUNER_ONE(log)
__TUNER_ONE(log10)
__TUNER_ONE(log1p)
__TUNER_ONE(log2)
__TUNER_ONE(logb)
__TUNER_ONE(nearbyint)
__TUNER_ONE(rint)
__TUNER_ONE(round)
__TUNER_ONE(sin)
__TUNER_ONE(sinh)
__TUNER_ONE(sqrt)
__TUNER_ONE(tan)
__TUNER_ONE(tanh)
__TUNER_ONE(tgamma)
__TUNER_ONE(trunc)
__TUNER_TWO(atan2)
__TUNER_TWO(copysign)
__TUNER_TWO(fdim)
__TUNER_TWO(fmax)
__TUNER_TWO(fmin)
__TUNER_TWO(fmod)
__TUNER_TWO(hypot)
__TUNER_TWO(nextafter)
__TUNER_TWO(pow)
__TUNER_TWO(remainder)
__TUNER_ASKS(isfinite)
__TUNER_ASKS(isinf)
__TUNER_ASKS(isnan)
__TUNER_ASKS(signbit)
#undef __TUNER_ONE
#undef __TUNER_TWO
#undef __TUNER_ASKS
