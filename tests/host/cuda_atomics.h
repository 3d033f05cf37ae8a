// Atomic functions of CUDA C++. Threads change only at barriers, so plain accesses do; they race with nothing.
#pragma once
#include "runtime.h"

namespace cuda_host {

// Applies `change` to what stands at `address` and returns what stood there before.
template <class T, class Change>
__attribute__((no_sanitize("thread"))) T atomically(T* address, Change change, int line) {
    atomic_access(address, sizeof(T), line);
    const T old = *address;
    *address = change(old);
    return old;
}

}  // namespace cuda_host

template <class T, class V>
T atomicAdd(T* address, V value, int line = __builtin_LINE()) {
    return cuda_host::atomically(address, [=](T old) { return T(old + T(value)); }, line);
}
template <class T, class V>
T atomicSub(T* address, V value, int line = __builtin_LINE()) {
    return cuda_host::atomically(address, [=](T old) { return T(old - T(value)); }, line);
}
template <class T, class V>
T atomicExch(T* address, V value, int line = __builtin_LINE()) {
    return cuda_host::atomically(address, [=](T) { return T(value); }, line);
}
template <class T, class V>
T atomicMin(T* address, V value, int line = __builtin_LINE()) {
    return cuda_host::atomically(address, [=](T old) { return T(value) < old ? T(value) : old; }, line);
}
template <class T, class V>
T atomicMax(T* address, V value, int line = __builtin_LINE()) {
    return cuda_host::atomically(address, [=](T old) { return old < T(value) ? T(value) : old; }, line);
}
template <class T, class V>
T atomicAnd(T* address, V value, int line = __builtin_LINE()) {
    return cuda_host::atomically(address, [=](T old) { return T(old & T(value)); }, line);
}
template <class T, class V>
T atomicOr(T* address, V value, int line = __builtin_LINE()) {
    return cuda_host::atomically(address, [=](T old) { return T(old | T(value)); }, line);
}
template <class T, class V>
T atomicInc(T* address, V limit, int line = __builtin_LINE()) {
    return cuda_host::atomically(address, [=](T old) { return old >= T(limit) ? T(0) : T(old + 1); }, line);
}
template <class T, class C, class V>
T atomicCAS(T* address, C compare, V value, int line = __builtin_LINE()) {
    return cuda_host::atomically(address, [=](T old) { return old == T(compare) ? T(value) : old; }, line);
}

inline void __threadfence() {}
inline void __threadfence_block() {}
inline void __threadfence_system() {}
