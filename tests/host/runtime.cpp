// Blocks one after another; threads of a block as fibres, warps one after another or interleaved.
#include "runtime.h"

#include <link.h>
#include <setjmp.h>
#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <random>
#include <vector>

namespace cuda_host {

Index grid_size, block_size, block_index;
Index* thread_index;

namespace {

constexpr int kWarp = 32;
constexpr int kMaxThreads = 1024;
constexpr std::size_t kStackBytes = 128 * 1024;
constexpr unsigned char kPoison = 0xff;  // NaN as float and double, -1 as int

enum class State { ready, at_warp_barrier, at_block_barrier, done };

struct Fibre {
    jmp_buf context;
    bool started = false;
    State state = State::ready;
    Index thread{};
    int line = 0;
    unsigned mask = 0;
    int source = -1;
    std::uint64_t given = 0, taken = 0;
};

std::vector<Fibre> fibres;
Fibre* current;
jmp_buf scheduler;
char* stacks;
char* shared;
void (*kernel_call)(const Argument*);
const Argument* kernel_arguments;
char message[512];
bool failed;
std::mt19937_64 rng;
thread_local char tls_anchor;  // makes sure that this library's thread storage exists

void say(const char* format, ...) {
    if (failed) return;
    failed = true;
    const int used = std::snprintf(message, sizeof message, "block (%u, %u, %u): ", block_index.x, block_index.y,
                                   block_index.z);
    va_list rest;
    va_start(rest, format);
    std::vsnprintf(message + used, sizeof message - used, format, rest);
    va_end(rest);
}

void yield() {
    if (!_setjmp(current->context)) _longjmp(scheduler, 1);
}

void fibre_main() {
    kernel_call(kernel_arguments);
    current->state = State::done;
    _longjmp(scheduler, 1);
}

void resume(Fibre& fibre) {
    current = &fibre;
    thread_index = &fibre.thread;
    if (_setjmp(scheduler)) return;
    if (fibre.started) _longjmp(fibre.context, 1);
    fibre.started = true;
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = stacks + kStackBytes * std::size_t(&fibre - fibres.data());
    start.uc_stack.ss_size = kStackBytes;
    start.uc_link = nullptr;
    makecontext(&start, fibre_main, 0);
    setcontext(&start);
}

// Lets every lane go whose named partners (those that have not exited) all wait at the same place.
bool release_warp(int first, int last) {
    bool any = false;
    for (int t = first; t < last; ++t) {
        Fibre& asking = fibres[t];
        if (asking.state != State::at_warp_barrier) continue;
        const unsigned mask = asking.mask;
        bool complete = true;
        for (int u = first; u < last && complete; ++u) {
            const Fibre& other = fibres[u];
            if (!(mask >> (u - first) & 1u) || other.state == State::done) continue;
            complete = other.state == State::at_warp_barrier && other.mask == mask && other.line == asking.line;
        }
        if (!complete) continue;
        for (int u = first; u < last; ++u) {
            Fibre& other = fibres[u];
            if (!(mask >> (u - first) & 1u) || other.state == State::done) continue;
            const int from = first + other.source;
            const bool came = other.source >= 0 && from < last && (mask >> other.source & 1u) &&
                              fibres[from].state != State::done;
            other.taken = came ? fibres[from].given : ~std::uint64_t{0};
        }
        for (int u = first; u < last; ++u)
            if ((mask >> (u - first) & 1u) && fibres[u].state != State::done) fibres[u].state = State::ready;
        any = true;
    }
    return any;
}

std::vector<int> arranged(int count, int order) {
    std::vector<int> sequence(count);
    for (int i = 0; i < count; ++i) sequence[i] = order == 1 ? count - 1 - i : i;
    if (order == 2) std::shuffle(sequence.begin(), sequence.end(), rng);
    return sequence;
}

// Every lane that may goes to where it waits next. True when some lanes may go on from there.
bool step_warp(int first, int last, int order) {
    for (int lane : arranged(last - first, order)) {
        Fibre& fibre = fibres[first + lane];
        if (fibre.state != State::ready) continue;
        resume(fibre);
        if (failed) return false;
    }
    return release_warp(first, last);
}

// Every warp goes to a block barrier or to its end. In order 2 each waits for the others at any of its steps, and
// for several of theirs, as warps on a device may: what only a warp's own meetings keep apart then shows.
void run_warps(int threads, int order) {
    std::vector<int> going = arranged((threads + kWarp - 1) / kWarp, order);
    std::size_t turn = 0;
    while (!going.empty() && !failed) {
        if (order == 2 && rng() % 2) turn = rng() % going.size();
        const int first = going[turn] * kWarp;
        if (step_warp(first, std::min(threads, first + kWarp), order)) continue;
        going.erase(going.begin() + std::ptrdiff_t(turn));
        turn = 0;
    }
}

// True when all threads stood at one block barrier and go on.
bool release_block() {
    int waiting = 0, done = 0;
    const Fibre* someone = nullptr;
    for (const Fibre& fibre : fibres) {
        waiting += fibre.state == State::at_block_barrier;
        done += fibre.state == State::done;
        if (fibre.state == State::at_block_barrier && !someone) someone = &fibre;
        if (fibre.state == State::at_warp_barrier)
            return say("thread %u waits at line %d for lanes that never come", fibre.thread.x, fibre.line), false;
    }
    if (!waiting) return false;
    if (done)
        return say("%d threads left before the barrier at line %d, where %d wait", done, someone->line, waiting),
               false;
    for (Fibre& fibre : fibres) {
        if (fibre.line != someone->line)
            return say("threads wait at different barriers, lines %d and %d", someone->line, fibre.line), false;
        fibre.state = State::ready;
    }
    return true;
}

// Static shared variables are thread-local ones of this library: fill all of its thread storage but the anchor.
int poison_thread_storage(dl_phdr_info* info, std::size_t, void*) {
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        if (header.p_type != PT_TLS || !info->dlpi_tls_data) continue;
        char* begin = static_cast<char*>(info->dlpi_tls_data);
        if (&tls_anchor < begin || &tls_anchor >= begin + header.p_memsz) continue;
        std::memset(begin, kPoison, header.p_memsz);
        return 1;
    }
    return 0;
}

void run_block(const Launch& how) {
    std::memset(shared, kPoison, how.shared_bytes);
    *const_cast<volatile char*>(&tls_anchor) = 0;
    dl_iterate_phdr(poison_thread_storage, nullptr);
    const int threads = int(how.block.x * how.block.y * how.block.z);
    fibres.assign(threads, Fibre{});
    for (int t = 0; t < threads; ++t) {
        const unsigned x = t % how.block.x, y = t / how.block.x % how.block.y;
        fibres[t].thread = {x, y, t / (how.block.x * how.block.y)};
    }
    do {
        run_warps(threads, how.order);
        if (failed) return;
    } while (release_block());
}

}  // namespace

int lane() { return int(current - fibres.data()) % kWarp; }

void* dynamic_shared() { return shared; }

void block_barrier(int line) {
    current->line = line;
    current->state = State::at_block_barrier;
    yield();
}

std::uint64_t exchange(unsigned mask, std::uint64_t bits, int source, int line) {
    if (!(mask >> lane() & 1u)) fail("a lane calls a warp function whose mask does not name it", line);
    current->line = line;
    current->mask = mask;
    current->given = bits;
    current->source = source;
    current->state = State::at_warp_barrier;
    yield();
    return current->taken;
}

void warp_barrier(unsigned mask, int line) { exchange(mask, 0, lane(), line); }

void fail(const char* what, int line) {
    say("thread (%u, %u, %u), line %d: %s", thread_index->x, thread_index->y, thread_index->z, line, what);
    yield();
    std::abort();  // a failed block is never resumed
}

const char* launch(const Launch& how, void (*call)(const Argument*), bool takes, const Argument* arguments) {
    if (!takes) return "the arguments are not those of the kernel (number, sizes, pointers)";
    const std::size_t threads = std::size_t(how.block.x) * how.block.y * how.block.z;
    if (threads < 1 || threads > kMaxThreads) return "a block holds 1 to 1024 threads";
    if (!stacks) {
        void* memory = mmap(nullptr, kStackBytes * kMaxThreads, PROT_READ | PROT_WRITE,
                            MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
        if (memory == MAP_FAILED) return "no memory for the stacks of a block";
        stacks = static_cast<char*>(memory);
    }
    shared = static_cast<char*>(std::aligned_alloc(128, (how.shared_bytes + 255) / 128 * 128));
    grid_size = how.grid;
    block_size = how.block;
    kernel_call = call;
    kernel_arguments = arguments;
    rng.seed(how.seed);
    failed = false;
    const int blocks = int(how.grid.x * how.grid.y * how.grid.z);
    for (int b : arranged(blocks, how.order)) {
        block_index = {b % how.grid.x, b / how.grid.x % how.grid.y, b / (how.grid.x * how.grid.y)};
        run_block(how);
        if (failed) break;
    }
    std::free(shared);
    return failed ? message : "";
}

}  // namespace cuda_host
