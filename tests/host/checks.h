// What the checked build watches of a launch: every access to memory, and the barriers between them.
//
// The kernels are compiled with -fsanitize=thread, whose calls before each access come to checks.cpp instead of the
// sanitizer's library: a launch is one thread of the host, and which accesses are ordered depends on the kernel's
// barriers alone, not on time. In the plain build nothing is left of it.
#pragma once
#include "runtime.h"

namespace cuda_host {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;

struct Span {
    const char* begin = nullptr;
    const char* end = nullptr;
    bool holds(const char* from, std::size_t bytes) const { return from >= begin && from + bytes <= end; }
    std::size_t bytes() const { return std::size_t(end - begin); }
};

// Of the runtime, for the checks.
extern int running;         // the thread that runs now, within the block
extern Span running_stack;  // its own
Index index_of(int thread);
Span loaded(bool thread_storage);  // this library's image, or its static shared memory
// Ends the launch with a message that names block and thread; "[0x...]" in it is a place in this library.
[[noreturn]] void fail_with(const char* format, ...) __attribute__((format(printf, 1, 2)));

namespace checks {

#ifdef CUDA_HOST_CHECKED
extern bool watching;  // while code of a kernel runs
void launch_begins(const Argument* arguments, std::size_t count, Span statics, Span dynamic);
void launch_ends();
void block_begins();
void block_met();
void warp_met(int first, unsigned lanes);
void arrived(const void* barrier, bool last);
void passed(const void* barrier);
void atomic_access(const void* address, std::size_t bytes, int line);
#else
static bool watching;
inline void launch_begins(const Argument*, std::size_t, Span, Span) {}
inline void launch_ends() {}
inline void block_begins() {}
inline void block_met() {}
inline void warp_met(int, unsigned) {}
inline void arrived(const void*, bool) {}
inline void passed(const void*) {}
inline void atomic_access(const void*, std::size_t, int) {}
#endif

}  // namespace checks

// Orders accesses to memory by the barriers between them.
namespace races {

void watch(Span span, const char* name);  // until the launch ends
void launch_ends();
void block_met();
void warp_met(int first, unsigned lanes);
void arrived(const void* barrier, bool last);  // the thread that runs, at one that counts arrivals
void passed(const void* barrier);   // its last phase that has ended
bool access(const char* address, std::size_t bytes, bool writes, const void* place);  // false where nobody watches

}  // namespace races

unsigned long offset_of(const void* place);  // within this library

}  // namespace cuda_host
