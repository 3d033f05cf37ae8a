// Blocks one after another; threads of a block as fibres, warps one after another or interleaved.
#include "runtime.h"

#include <sys/mman.h>
#include <ucontext.h>

#include <algorithm>
#include <cstdarg>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <random>
#include <vector>

#include "checks.h"

// Barriers that any launch of this library has come to.
constexpr int kMaxBarriers = 256;
extern "C" __attribute__((visibility("default"))) unsigned char cuda_host_reached[kMaxBarriers];
unsigned char cuda_host_reached[kMaxBarriers];

namespace cuda_host {

Index grid_size, block_size, block_index;
Index* thread_index;

namespace {

constexpr std::size_t kStackBytes = 1024 * 1024;  // frames of unoptimised code under a sanitizer are wide
constexpr unsigned char kPoison = 0xff;  // NaN as float and double, -1 as int

enum class State { ready, at_warp_barrier, at_counted_barrier, at_block_barrier, done };

struct Fibre {
    State state = State::ready;
    int line = 0;
    unsigned mask = 0;
    int source = -1;
    bool orders = false;  // memory, not the order of execution alone
    std::uint64_t given = 0, taken = 0;
    unsigned votes = 0;  // of the warp, a bit for each lane
    const std::uint64_t* counted = nullptr;
    unsigned parity = 0;
};

// A barrier that counts, as it stands in its 8 bytes.
struct Counted {
    std::uint16_t arrivals, missing;  // of a phase
    std::uint32_t phase;              // that goes on
};
static_assert(sizeof(Counted) == sizeof(std::uint64_t));

// Where a fibre, or the one that resumes them, goes on. Those of the compiler save three registers and ask nobody.
struct Context {
    void* place[5];
    bool started = false;
};

std::vector<Fibre> fibres;
Context contexts[kMaxThreads];  // of fibres, which serve one block after another
Context scheduler;
Index threads[kMaxThreads];
Fibre* current;
char* stacks;
char* shared;
Span statics;
Call kernel_call;
const Argument* kernel_arguments;
char message[1024];
bool failed;
int removed_barrier;
std::mt19937_64 rng;

void say_all(const char* format, va_list rest) {
    if (failed) return;
    failed = true;
    const int used = std::snprintf(message, sizeof message, "block (%u, %u, %u): ", block_index.x, block_index.y,
                                   block_index.z);
    std::vsnprintf(message + used, sizeof message - used, format, rest);
}

void say(const char* format, ...) {
    va_list rest;
    va_start(rest, format);
    say_all(format, rest);
    va_end(rest);
}

// Apart from where places are saved, as the compiler wants it; it must not reason about what runs in between.
[[noreturn]] __attribute__((noipa)) void go_on(Context& context) { __builtin_longjmp(context.place, 1); }

__attribute__((noipa)) void yield() {
    checks::watching = false;
    if (!__builtin_setjmp(contexts[running].place)) go_on(scheduler);
    checks::watching = true;
}

void fibre_main() {
    checks::watching = true;
    for (;;) {
        kernel_call(kernel_arguments);
        current->state = State::done;
        yield();  // until the next block
    }
}

__attribute__((noipa)) void resume(int thread) {
    char* const stack = stacks + kStackBytes * std::size_t(thread);
    running = thread;
    running_stack = {stack, stack + kStackBytes};
    current = &fibres[thread];
    thread_index = threads + thread;
    if (__builtin_setjmp(scheduler.place)) return;
    if (contexts[thread].started) go_on(contexts[thread]);
    contexts[thread].started = true;
    ucontext_t start;
    getcontext(&start);
    start.uc_stack.ss_sp = stacks + kStackBytes * std::size_t(running);
    start.uc_stack.ss_size = kStackBytes;
    start.uc_link = nullptr;
    makecontext(&start, fibre_main, 0);
    setcontext(&start);
}

// Everyone of the warp that `mask` names and that has not exited, lane by lane.
unsigned present(int first, int last, unsigned mask) {
    unsigned lanes = 0;
    for (int t = first; t < last; ++t)
        if (fibres[t].state != State::done) lanes |= 1u << (t - first);
    return lanes & mask;
}

bool all_wait_with(const Fibre& asking, int first, unsigned lanes) {
    for (int lane = 0; lane < kWarp; ++lane) {
        if (!(lanes >> lane & 1u)) continue;
        const Fibre& other = fibres[first + lane];
        const bool waits = other.state == State::at_warp_barrier;
        if (!waits || other.mask != asking.mask || other.line != asking.line) return false;
    }
    return true;
}

// The lanes exchange what they gave and may go on.
void meet(int first, unsigned lanes) {
    unsigned votes = 0;
    bool orders = false;
    for (int lane = 0; lane < kWarp; ++lane) {
        if (!(lanes >> lane & 1u)) continue;
        Fibre& fibre = fibres[first + lane];
        const bool came = fibre.source >= 0 && fibre.source < kWarp && (lanes >> fibre.source & 1u);
        fibre.taken = came ? fibres[first + fibre.source].given : ~std::uint64_t{0};
        votes |= unsigned(fibre.given & 1) << lane;
        orders = fibre.orders;
    }
    for (int lane = 0; lane < kWarp; ++lane)
        if (lanes >> lane & 1u) fibres[first + lane].votes = votes, fibres[first + lane].state = State::ready;
    if (orders) checks::warp_met(first, lanes);
}

Counted counted_at(const std::uint64_t* barrier) {
    Counted counted;
    std::memcpy(&counted, barrier, sizeof counted);
    return counted;
}

bool has_ended(const std::uint64_t* barrier, unsigned parity) { return (counted_at(barrier).phase & 1u) != parity; }

// Lets every lane go whose phase has ended.
bool release_counted(int first, int last) {
    bool any = false;
    for (int t = first; t < last; ++t) {
        Fibre& fibre = fibres[t];
        if (fibre.state != State::at_counted_barrier || !has_ended(fibre.counted, fibre.parity)) continue;
        fibre.state = State::ready;
        any = true;
    }
    return any;
}

// Lets every lane go whose named partners (those that have not exited) all wait at the same place.
bool release_warp(int first, int last) {
    bool any = false;
    for (int t = first; t < last; ++t) {
        if (fibres[t].state != State::at_warp_barrier) continue;
        const unsigned lanes = present(first, last, fibres[t].mask);
        if (!all_wait_with(fibres[t], first, lanes)) continue;
        meet(first, lanes);
        any = true;
    }
    return any;
}

void arrange(int* sequence, int count, int order) {
    std::iota(sequence, sequence + count, 0);
    if (order == 1) std::reverse(sequence, sequence + count);
    if (order == 2) std::shuffle(sequence, sequence + count, rng);
}

std::vector<int> arranged(int count, int order) {
    std::vector<int> sequence(count);
    arrange(sequence.data(), count, order);
    return sequence;
}

// Every lane that may goes to where it waits next. True when some lanes may go on from there.
bool step_warp(int first, int last, int order) {
    int lanes[kWarp];
    arrange(lanes, last - first, order);
    for (int i = 0; i < last - first; ++i) {
        if (fibres[first + lanes[i]].state != State::ready) continue;
        resume(first + lanes[i]);
        if (failed) return false;
    }
    return release_warp(first, last);
}

// Every warp goes to a block barrier or to its end. In order 2 each waits for the others at any of its steps, and
// for several of theirs, as warps on a device may: what only a warp's own meetings keep apart then shows.
void run_warps(int count, int order) {
    std::vector<int> going = arranged((count + kWarp - 1) / kWarp, order);
    std::size_t turn = 0;
    while (!going.empty() && !failed) {
        if (order == 2 && rng() % 2) turn = rng() % going.size();
        const int first = going[turn] * kWarp;
        if (step_warp(first, std::min(count, first + kWarp), order)) continue;
        going.erase(going.begin() + std::ptrdiff_t(turn));
        turn = 0;
    }
}

// True when all threads stood at one block barrier and go on.
bool release_block() {
    int waiting = 0, done = 0;
    std::uint64_t votes = 0;
    const Fibre* someone = nullptr;
    for (const Fibre& fibre : fibres) {
        waiting += fibre.state == State::at_block_barrier;
        done += fibre.state == State::done;
        votes += fibre.given;
        if (fibre.state == State::at_block_barrier && !someone) someone = &fibre;
        if (fibre.state == State::at_warp_barrier)
            return say("thread %d waits at line %d for lanes that never come", int(&fibre - fibres.data()), fibre.line),
                   false;
        if (fibre.state == State::at_counted_barrier)
            return say("thread %d waits at line %d for arrivals that never come", int(&fibre - fibres.data()),
                       fibre.line),
                   false;
    }
    if (!waiting) return false;
    if (done)
        return say("%d threads left before the barrier at line %d, where %d wait", done, someone->line, waiting),
               false;
    for (Fibre& fibre : fibres) {
        if (fibre.line != someone->line)
            return say("threads wait at different barriers, lines %d and %d", someone->line, fibre.line), false;
        fibre.state = State::ready;
        fibre.taken = votes;
    }
    checks::block_met();
    return true;
}

void run_block(const Launch& how) {
    std::memset(shared, kPoison, how.shared_bytes);
    std::memset(const_cast<char*>(statics.begin), kPoison, statics.bytes());
    const int count = int(how.block.x * how.block.y * how.block.z);
    fibres.assign(count, Fibre{});
    for (int t = 0; t < count; ++t)
        threads[t] = {t % how.block.x, t / how.block.x % how.block.y, t / (how.block.x * how.block.y)};
    checks::block_begins();
    do {
        do {
            run_warps(count, how.order);
            if (failed) return;
        } while (release_counted(0, count));
    } while (release_block());
}

}  // namespace

int running;
Span running_stack;

int lane() { return running % kWarp; }
Index index_of(int thread) { return threads[thread]; }
void* dynamic_shared() { return shared; }

bool kept(int barrier) {
    cuda_host_reached[barrier] = 1;
    return barrier != removed_barrier;
}

void block_barrier(int line) { block_count(false, line); }

int block_count(bool vote, int line) {
    current->line = line;
    current->given = vote;
    current->state = State::at_block_barrier;
    yield();
    return int(current->taken);
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

unsigned ballot(unsigned mask, bool vote, int line) {
    exchange(mask, vote, lane(), line);
    return current->votes;
}

void warp_barrier(unsigned mask, int line) {
    current->orders = true;
    exchange(mask, 0, lane(), line);
    current->orders = false;
}

void counted_make(std::uint64_t* barrier, unsigned arrivals, int line) {
    atomic_access(barrier, sizeof *barrier, line);
    const Counted counted{std::uint16_t(arrivals), std::uint16_t(arrivals), 0};
    std::memcpy(barrier, &counted, sizeof counted);
}

void counted_arrive(std::uint64_t* barrier, int line) {
    atomic_access(barrier, sizeof *barrier, line);
    Counted counted = counted_at(barrier);
    if (!counted.missing) fail("an arrival at a barrier that nobody made, or one too many", line);
    const bool last = !--counted.missing;
    checks::arrived(barrier, last);
    if (last) counted.missing = counted.arrivals, ++counted.phase;
    std::memcpy(barrier, &counted, sizeof counted);
}

void counted_wait(std::uint64_t* barrier, unsigned parity, int line) {
    atomic_access(barrier, sizeof *barrier, line);
    if (!has_ended(barrier, parity)) {
        current->line = line;
        current->counted = barrier;
        current->parity = parity;
        current->state = State::at_counted_barrier;
        yield();
    }
    checks::passed(barrier);
}

void atomic_access(const void* address, std::size_t bytes, int line) { checks::atomic_access(address, bytes, line); }

void fail(const char* what, int line) { fail_with("line %d: %s", line, what); }

void fail_with(const char* format, ...) {
    char what[768];
    va_list rest;
    va_start(rest, format);
    std::vsnprintf(what, sizeof what, format, rest);
    va_end(rest);
    say("thread (%u, %u, %u): %s", thread_index->x, thread_index->y, thread_index->z, what);
    yield();
    std::abort();  // a failed block is never resumed
}

const char* launch(const Launch& how, Call call, bool takes, const Argument* arguments, std::size_t count) {
    if (!takes) return "the arguments are not those of the kernel (number, sizes, pointers)";
    const std::size_t size = std::size_t(how.block.x) * how.block.y * how.block.z;
    if (size < 1 || size > kMaxThreads) return "a block holds 1 to 1024 threads";
    void* const stack_memory = mmap(nullptr, kStackBytes * size, PROT_READ | PROT_WRITE,
                                    MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    void* shared_memory = nullptr;  // of the exact size, so that AddressSanitizer sees where it ends
    if (stack_memory == MAP_FAILED || posix_memalign(&shared_memory, 1024, how.shared_bytes))
        return "no memory for the stacks and the shared memory of a block";
    stacks = static_cast<char*>(stack_memory);
    shared = static_cast<char*>(shared_memory);
    statics = loaded(true);
    grid_size = how.grid;
    block_size = how.block;
    kernel_call = call;
    kernel_arguments = arguments;
    rng.seed(how.seed);
    removed_barrier = how.removed;
    failed = false;
    std::fill(contexts, contexts + size, Context{});
    checks::launch_begins(arguments, count, statics, {shared, shared + how.shared_bytes});
    const int blocks = int(how.grid.x * how.grid.y * how.grid.z);
    for (int b : arranged(blocks, how.order)) {
        block_index = {b % how.grid.x, b / how.grid.x % how.grid.y, b / (how.grid.x * how.grid.y)};
        run_block(how);
        if (failed) break;
    }
    checks::launch_ends();
    std::free(shared);
    munmap(stacks, kStackBytes * size);
    return failed ? message : "";
}

}  // namespace cuda_host
