// Finds two threads of a block that touch one word of shared memory, or of an array that may be written, one of them
// writing, with no barrier between. (What two blocks do is not compared: they run one after another.)
//
// Every access is stamped with its thread's clock, which advances where the thread's warp meets, and with the count of
// block barriers. A thread knows of each lane of its warp the clock up to which a meeting has ordered it before its own
// accesses (vector clocks, as in C. Flanagan and S. N. Freund, "FastTrack", PLDI 2009, kept apart for every warp).
// Shuffles order no memory (CUDA C++ Programming Guide, "Warp Shuffle Functions"). Neighbouring bytes of one 4-byte
// word count as one.
#include <vector>

#include "checks.h"

namespace cuda_host::races {

namespace {

struct Access {
    int thread = -1;
    unsigned clock = 0, barriers = 0;
    const void* place = nullptr;
};

struct Word {
    Access writer;
    std::vector<Access> readers;  // since the write, none ordered before another
};

constexpr std::size_t kWordBytes = 4;

struct Area {
    Span span;
    const char* name;
    std::vector<Word> words;
};

std::vector<Area> areas;
unsigned barriers_passed;  // by the block; never goes back, so that a new block finds no old accesses
unsigned clock_of[kMaxThreads];
unsigned known[kMaxThreads][kWarp];

bool ordered(const Access& earlier, int thread) {
    if (earlier.thread < 0 || earlier.thread == thread || earlier.barriers != barriers_passed) return true;
    if (earlier.thread / kWarp != thread / kWarp) return false;
    return known[thread][earlier.thread % kWarp] > earlier.clock;
}

[[noreturn]] void report(const Area& area, std::size_t byte, const Access& earlier, bool wrote, const Access& now,
                         bool writes) {
    const Index other = index_of(earlier.thread);
    fail_with("%s byte %zu of %s [%#lx], which thread (%u, %u, %u) %s [%#lx] with no barrier between",
              writes ? "writes" : "reads", byte, area.name, offset_of(now.place), other.x, other.y, other.z,
              wrote ? "wrote" : "read", offset_of(earlier.place));
}

void touch(Area& area, std::size_t at, const Access& now, bool writes) {
    Word& word = area.words[at];
    if (!ordered(word.writer, now.thread)) report(area, at * kWordBytes, word.writer, true, now, writes);
    std::size_t kept = 0;
    for (const Access& reader : word.readers) {
        if (ordered(reader, now.thread)) continue;
        if (writes) report(area, at * kWordBytes, reader, false, now, writes);
        word.readers[kept++] = reader;
    }
    word.readers.resize(kept);
    if (writes)
        word.writer = now;
    else
        word.readers.push_back(now);
}

}  // namespace

void watch(Span span, const char* name) {
    areas.push_back({span, name, std::vector<Word>((span.bytes() + kWordBytes - 1) / kWordBytes)});
}

void launch_ends() { areas.clear(); }

void block_met() { ++barriers_passed; }

void warp_met(int first, unsigned lanes) {
    unsigned joined[kWarp] = {};
    for (int lane = 0; lane < kWarp; ++lane) {
        if (!(lanes >> lane & 1u)) continue;
        known[first + lane][lane] = ++clock_of[first + lane];
        for (int other = 0; other < kWarp; ++other)
            if (joined[other] < known[first + lane][other]) joined[other] = known[first + lane][other];
    }
    for (int lane = 0; lane < kWarp; ++lane)
        if (lanes >> lane & 1u)
            for (int other = 0; other < kWarp; ++other) known[first + lane][other] = joined[other];
}

bool access(const char* address, std::size_t bytes, bool writes, const void* place) {
    const int thread = thread_number();
    const Access now{thread, clock_of[thread], barriers_passed, place};
    for (Area& area : areas) {
        if (!area.span.holds(address, bytes)) continue;
        const std::size_t from = std::size_t(address - area.span.begin);
        for (std::size_t at = from / kWordBytes; at * kWordBytes < from + bytes; ++at) touch(area, at, now, writes);
        return true;
    }
    return false;
}

}  // namespace cuda_host::races
