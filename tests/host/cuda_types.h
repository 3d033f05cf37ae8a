// Vector types of CUDA C++, with the alignment that its compiler gives them.
#pragma once

template <class T>
struct alignas(2 * sizeof(T)) HostVector2 {
    T x, y;
};
template <class T>
struct HostVector3 {
    T x, y, z;
};
template <class T>
struct alignas(16) HostVector4 {
    T x, y, z, w;
};

using float2 = HostVector2<float>;
using double2 = HostVector2<double>;
using int2 = HostVector2<int>;
using uint2 = HostVector2<unsigned>;
using longlong2 = HostVector2<long long>;
using ulonglong2 = HostVector2<unsigned long long>;
using float3 = HostVector3<float>;
using int3 = HostVector3<int>;
using uint3 = HostVector3<unsigned>;
using float4 = HostVector4<float>;
using double4 = HostVector4<double>;
using int4 = HostVector4<int>;
using uint4 = HostVector4<unsigned>;

inline float2 make_float2(float x, float y) { return {x, y}; }
inline double2 make_double2(double x, double y) { return {x, y}; }
inline int2 make_int2(int x, int y) { return {x, y}; }
inline uint2 make_uint2(unsigned x, unsigned y) { return {x, y}; }
inline longlong2 make_longlong2(long long x, long long y) { return {x, y}; }
inline ulonglong2 make_ulonglong2(unsigned long long x, unsigned long long y) { return {x, y}; }
inline float3 make_float3(float x, float y, float z) { return {x, y, z}; }
inline float4 make_float4(float x, float y, float z, float w) { return {x, y, z, w}; }
inline double4 make_double4(double x, double y, double z, double w) { return {x, y, z, w}; }
inline int4 make_int4(int x, int y, int z, int w) { return {x, y, z, w}; }
inline uint4 make_uint4(unsigned x, unsigned y, unsigned z, unsigned w) { return {x, y, z, w}; }
