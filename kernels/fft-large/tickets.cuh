// The order in which the blocks of one launch do both passes of a batch of transforms, through a ring of problems that
// stays in the second-level cache.
//
// Blocks draw tickets 0, 1, 2, ... from a counter. The first `lag` problems' first passes come first; then first passes
// of problem p and second passes of problem p - lag in turn; at last the second passes of the last `lag` problems.
// Problem p lies in slot p % slots of the ring between its passes.
//
// Why no block waits forever: a job waits for jobs of smaller tickets only. A second pass waits for all of its
// problem's first passes, which were drawn at least one problem before. A first pass of problem p overwrites that of
// number p - slots and waits for its second passes: they were drawn with the first passes of problem p - slots + lag,
// which is before p as slots > lag. A block has begun with the smallest ticket it holds, so the block that holds the
// smallest unfinished ticket of all is on the device, works on it and waits for nothing; it ends, and so does, by
// induction, every other. This needs neither all blocks on the device at a time nor any order among those that are.
#pragma once

struct Job {
    int problem, tile;
    bool second;
};

// `first` and `second` jobs of a problem; lag is at least 1 and at most the batch. A problem of the batch or beyond it:
// there is nothing left.
template <int first, int second>
__device__ __forceinline__ Job job_of(unsigned ticket, int batch, int lag) {
    const unsigned begun = lag * first, both = (batch - lag) * (first + second);
    if (ticket < begun) return {int(ticket / first), int(ticket % first), false};
    ticket -= begun;
    if (ticket >= both) {
        ticket -= both;
        return {batch - lag + int(ticket / second), int(ticket % second), true};
    }
    const int step = ticket / (first + second), at = ticket % (first + second);
    return at < first ? Job{lag + step, at, false} : Job{step, at - first, true};
}

// What the blocks share, all zero when they start: tickets drawn; for each problem, jobs done of either pass
struct Ledger {
    unsigned* drawn;
    unsigned* first_done;
    unsigned* second_done;
};

__device__ __forceinline__ Ledger ledger_in(unsigned* counters, int batch) {
    return {counters, counters + 1, counters + 1 + batch};
}
