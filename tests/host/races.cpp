// Finds two threads of a block that touch one word of shared memory, or of an array that may be written, one of them
// writing, with no barrier between. (What two blocks do is not compared: they run one after another.)
//
// Every access is stamped with its thread's clock, which advances where the thread's warp meets, and with the count of
// block barriers. A thread knows of each lane of its warp the clock up to which a meeting has ordered it before its own
// accesses (vector clocks, as in C. Flanagan and S. N. Freund, "FastTrack", PLDI 2009, kept apart for every warp).
// Who has passed a barrier that counts arrivals knows what those knew that arrived there, of any warp; such clocks are
// kept for all threads from the first arrival on. Shuffles order no memory (CUDA C++ Programming Guide, "Warp Shuffle
// Functions"). Neighbouring bytes of one word count as one: of 4 bytes, or of 2 in an array that is first touched by less.
#include <algorithm>
#include <cstdlib>
#include <map>
#include <new>
#include <vector>

#include "checks.h"

namespace cuda_host::races {

namespace {

struct Access {
    const void* place;
    int thread;
    unsigned clock, barriers;  // 0 of none: a block begins with a barrier
};

struct Read {
    Access access;
    unsigned next;  // as Word::reads
};

// Begins as zeros, of which the system makes pages only where a launch comes.
struct Word {
    Access writer;
    unsigned reads;            // since the write: index + 1 of the last in the pool
    unsigned barriers;         // passed when it was read; reads before another barrier are ordered before any access
    unsigned count, tolerated;  // reads, and how many there may be before the ordered ones are looked for
};

constexpr std::size_t kWordBytes = 4, kLeastBytes = 2;
constexpr unsigned kTolerated = 4;

struct Area {
    Span span;
    const char* name;
    Word* words;
    std::size_t word_bytes;  // 0 until it is touched
};

std::vector<Read> pool;  // of reads since the last block barrier
unsigned unused;         // as Word::reads
std::vector<Area> areas;
unsigned barriers_passed;  // by the block; never goes back, so that a new block finds no old accesses
unsigned clock_of[kMaxThreads];
unsigned known[kMaxThreads][kWarp];

using Clocks = std::vector<unsigned>;  // of all threads
std::vector<Clocks> beyond;            // what each thread knows of others, or none
struct Told {
    Clocks arrived{Clocks(kMaxThreads)}, ended{Clocks(kMaxThreads)};  // in the phase that goes on, and in that before
};
std::map<const void*, Told> told;  // at barriers that count

bool ordered(const Access& earlier, int thread) {
    if (earlier.thread == thread || earlier.barriers != barriers_passed) return true;
    if (!beyond.empty() && beyond[thread][earlier.thread] > earlier.clock) return true;
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

// Forgets the reads of a word that are ordered before an access; a write must not find another.
void look_at_reads(Area& area, std::size_t at, const Access& now, bool writes) {
    Word& word = area.words[at];
    word.count = 0;
    for (unsigned* link = &word.reads; *link;) {
        Read& read = pool[*link - 1];
        if (ordered(read.access, now.thread)) {
            const unsigned freed = *link;
            *link = read.next;
            read.next = unused, unused = freed;
            continue;
        }
        if (writes) report(area, at * area.word_bytes, read.access, false, now, writes);
        link = &read.next, ++word.count;
    }
    word.tolerated = 2 * word.count + kTolerated;
}

void touch(Area& area, std::size_t at, const Access& now, bool writes) {
    Word& word = area.words[at];
    if (!ordered(word.writer, now.thread)) report(area, at * area.word_bytes, word.writer, true, now, writes);
    if (word.barriers != barriers_passed)
        word.barriers = barriers_passed, word.reads = word.count = 0, word.tolerated = kTolerated;
    if (writes) {
        look_at_reads(area, at, now, true);
        word.writer = now;
        return;
    }
    if (word.reads && pool[word.reads - 1].access.thread == now.thread) {
        pool[word.reads - 1].access = now;
        return;
    }
    if (++word.count > word.tolerated) look_at_reads(area, at, now, false);
    if (!unused) pool.push_back({{}, 0}), unused = unsigned(pool.size());
    Read& read = pool[unused - 1];
    const unsigned made = unused;
    unused = read.next;
    read = {now, word.reads};
    word.reads = made;
}

void join(Clocks& to, const Clocks& from) {
    for (std::size_t i = 0; i < to.size(); ++i) to[i] = std::max(to[i], from[i]);
}

}  // namespace

void arrived(const void* barrier, bool last) {
    if (beyond.empty()) beyond.assign(kMaxThreads, Clocks(kMaxThreads));
    const int first = running / kWarp * kWarp;
    Clocks& own = beyond[running];
    for (int lane = 0; lane < kWarp; ++lane) own[first + lane] = std::max(own[first + lane], known[running][lane]);
    own[running] = ++clock_of[running];
    Told& here = told[barrier];
    join(here.arrived, own);
    if (last) here.ended = here.arrived;
}

void passed(const void* barrier) {
    if (const auto found = told.find(barrier); found != told.end()) join(beyond[running], found->second.ended);
}

void watch(Span span, const char* name) {
    void* const words = std::calloc((span.bytes() + kLeastBytes - 1) / kLeastBytes + 1, sizeof(Word));
    if (!words) throw std::bad_alloc();
    areas.push_back({span, name, static_cast<Word*>(words), 0});
}

void launch_ends() {
    for (const Area& area : areas) std::free(area.words);
    areas.clear();
    beyond.clear();
    told.clear();
    block_met();
}

void block_met() {
    ++barriers_passed;
    pool.clear();
    unused = 0;
}

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
    if (beyond.empty()) return;
    Clocks all(kMaxThreads);
    for (int lane = 0; lane < kWarp; ++lane)
        if (lanes >> lane & 1u) join(all, beyond[first + lane]);
    for (int lane = 0; lane < kWarp; ++lane)
        if (lanes >> lane & 1u) beyond[first + lane] = all;
}

bool access(const char* address, std::size_t bytes, bool writes, const void* place) {
    const Access now{place, running, clock_of[running], barriers_passed};
    for (Area& area : areas) {
        if (!area.span.holds(address, bytes)) continue;
        if (!area.word_bytes) area.word_bytes = bytes < kWordBytes ? kLeastBytes : kWordBytes;
        const std::size_t from = std::size_t(address - area.span.begin), word = area.word_bytes;
        for (std::size_t at = from / word; at * word < from + bytes; ++at) touch(area, at, now, writes);
        return true;
    }
    return false;
}

}  // namespace cuda_host::races
