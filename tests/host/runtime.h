// The machine that runs a kernel's blocks on the host: what kernels see of it, and how they are launched.
#pragma once
#include <cstddef>
#include <cstdint>
#include <type_traits>
#include <utility>

namespace cuda_host {

struct Index {
    unsigned x, y, z;
};

extern Index grid_size, block_size, block_index;
extern Index* thread_index;  // of the thread that runs now

int lane();
void* dynamic_shared();
void block_barrier(int line);
int block_count(bool vote, int line);  // a block barrier that tells how many threads voted for
void warp_barrier(unsigned mask, int line);
unsigned ballot(unsigned mask, bool vote, int line);
bool kept(int barrier);  // whether the launch leaves this barrier of the source in its place
// Barriers of shared memory that count arrivals (mbarrier).
void counted_make(std::uint64_t* barrier, unsigned arrivals, int line);
void counted_arrive(std::uint64_t* barrier, int line);
void counted_wait(std::uint64_t* barrier, unsigned parity, int line);  // for the end of the phase of this parity
void atomic_access(const void* address, std::size_t bytes, int line);
[[noreturn]] void fail(const char* what, int line);

// All lanes of `mask` meet; each gives `bits` and gets those of lane `source` of its warp.
std::uint64_t exchange(unsigned mask, std::uint64_t bits, int source, int line);

struct Argument {
    const void* value;
    std::size_t bytes;
    int is_pointer;
    int writable;        // of an array
    std::size_t extent;  // bytes of the array
};

struct Launch {
    Index grid, block;
    std::size_t shared_bytes;
    int order;  // 0 forward, 1 reverse, 2 shuffled by seed, warps interleaved
    std::uint64_t seed;
    int removed;  // number of a barrier, or -1
};

template <auto kernel>
struct Entry;

template <class... Parameters, void (*kernel)(Parameters...)>
struct Entry<kernel> {
    template <std::size_t... I>
    static void __attribute__((no_sanitize("thread"))) call(const Argument* arguments, std::index_sequence<I...>) {
        kernel(*static_cast<std::remove_reference_t<Parameters> const*>(arguments[I].value)...);
    }
    static void call(const Argument* arguments) { call(arguments, std::index_sequence_for<Parameters...>{}); }
    static bool takes(const Argument* arguments, std::size_t count) {
        if (count != sizeof...(Parameters)) return false;
        std::size_t i = 0;
        auto fits = [&](std::size_t bytes, bool pointer) {
            const Argument& given = arguments[i++];
            return given.bytes == bytes && bool(given.is_pointer) == pointer;
        };
        return (true & ... & fits(sizeof(Parameters), std::is_pointer_v<Parameters>));
    }
};

using Call = void (*)(const Argument*);

// Empty when the launch ran to its end; otherwise what went wrong.
const char* launch(const Launch& launch, Call call, bool takes, const Argument* arguments, std::size_t count);

}  // namespace cuda_host

// One C function per instantiation; the name is made by the Python side.
#define CUDA_HOST_ENTRY(name, ...)                                                                            \
    extern "C" __attribute__((visibility("default"))) const char* name(                                       \
        const cuda_host::Launch* how, const cuda_host::Argument* arguments, std::size_t count) {              \
        using Entry = cuda_host::Entry<&__VA_ARGS__>;                                                         \
        return cuda_host::launch(*how, Entry::call, Entry::takes(arguments, count), arguments, count);        \
    }
