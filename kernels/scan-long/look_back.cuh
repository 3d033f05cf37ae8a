// How the blocks of a scan learn what comes before their tiles: the decoupled look-back of D. Merrill and M. Garland,
// "Single-pass Parallel Prefix Scan with Decoupled Look-back", NVIDIA technical report NVR-2016-002, 2016.
//
// A tile tells the total of its own elements as soon as it knows it, and later what all elements of its row up to its
// end amount to. Who wants to know what comes before a tile joins totals, backwards, up to the first tile that knows
// all. A tile whose total is the same whatever comes before, as where a segment begins in it, tells all at once.
//
// What a tile tells. Every 4 bytes of a value stand in a word of 8 bytes, together with the stage of the tile: nothing
// (the word is zero), its own total, or all. A load or store of such a word is a single access on every GPU, and a value
// whose words are of one stage was written at one stage, as a tile writes each stage once. So values of any width need
// no fence and no wider accesses.
//
// Why no block waits forever. Tiles are numbered by a counter: a block draws a number when it begins (or, where blocks
// stay, before it has finished the tile before), and waits for tiles of smaller numbers only. The smallest unfinished
// tile of all belongs to a block that is on the device and has no smaller one to do; it waits for nothing, as those
// before it have told all. It ends, and so does, by induction, every other. This needs neither all blocks on the device
// at a time nor any order among those that are.
#pragma once
#include "elements.cuh"
#include "threads.cuh"

using Word = unsigned long long;

enum Stage : unsigned { kNothing = 0, kOwn = 1, kAll = 2 };

__device__ __forceinline__ Word load_word(const Word* word) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    Word now;
    asm volatile("ld.relaxed.gpu.global.u64 %0, [%1];" : "=l"(now) : "l"(word) : "memory");
    return now;
#else
    return *static_cast<const volatile Word*>(word);
#endif
}

__device__ __forceinline__ void store_word(Word* word, Word value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    asm volatile("st.relaxed.gpu.global.u64 [%0], %1;" ::"l"(word), "l"(value) : "memory");
#else
    *static_cast<volatile Word*>(word) = value;
#endif
}

template <int pause_ns>
__device__ __forceinline__ void rest() {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 700
    if constexpr (pause_ns > 0) __nanosleep(pause_ns);
#endif
}

template <class T>
struct Told {
    unsigned stage;
    T value;
};

// What the tiles of a launch have told; all zero when it begins.
template <class T>
struct Board {
    static constexpr int width = Words<T>::count;
    Word* words;

    __device__ __forceinline__ void tell(unsigned tile, Stage stage, const T& value) const {
        const Words<T> parts = words_of(value);
#pragma unroll
        for (int w = 0; w < width; ++w)
            store_word(words + size_t(tile) * width + w, Word(stage) << 32 | parts.at[w]);
    }

    // Of a tile whose words are just being written, nothing.
    __device__ __forceinline__ Told<T> told_by(unsigned tile) const {
        Words<T> parts;
        unsigned stage = 0;
#pragma unroll
        for (int w = 0; w < width; ++w) {
            const Word word = load_word(words + size_t(tile) * width + w);
            const unsigned its = unsigned(word >> 32);
            stage = w == 0 || its == stage ? its : unsigned(kNothing);
            parts.at[w] = unsigned(word);
        }
        return {stage, value_of<T>(parts)};
    }
};

template <class T, class Shuffle>
__device__ __forceinline__ T shuffled(const T& value, Shuffle shuffle) {
    Words<T> parts = words_of(value);
#pragma unroll
    for (int w = 0; w < Words<T>::count; ++w) parts.at[w] = shuffle(parts.at[w]);
    return value_of<T>(parts);
}

// Joins the values of lanes `from` and above, in their order; every lane gets it.
template <class Op, class T>
__device__ __forceinline__ T joined_from(int from, T value, int lane) {
#pragma unroll
    for (int step = 1; step < kWarp; step *= 2) {
        const T above = shuffled(value, [=](unsigned w) { return __shfl_down_sync(kAllLanes, w, step); });
        if (lane + step < kWarp) value = Op::join(value, above);
    }
    return shuffled(value, [=](unsigned w) { return __shfl_sync(kAllLanes, w, from); });
}

// What a row's elements before a tile amount to, for a whole warp. `first` is the tile that the row begins with, which
// comes before `tile`. Looks at 32 groups tiles at a time.
template <class Op, int groups, int pause_ns>
__device__ __forceinline__ typename Op::Carry look_back(const Board<typename Op::Carry>& board, unsigned first,
                                                       unsigned tile, int lane) {
    using Carry = typename Op::Carry;
    const Told<Carry> before_row = {kAll, Op::widen(Op::identity())};  // never counts: the first tile tells all
    const auto look = [&](long long at) { return at < (long long)first ? before_row : board.told_by(unsigned(at)); };
    Carry found = before_row.value;
    bool begun = false;
    for (long long end = tile;; end -= kWarp * groups) {
        Told<Carry> told[groups];
#pragma unroll
        for (int g = 0; g < groups; ++g) told[g] = look(end - kWarp * (g + 1) + lane);
#pragma unroll
        for (int g = 0; g < groups; ++g) {
            unsigned knowing;
            int nearest;  // lane whose tile knows all, or 0
            while (true) {
                knowing = __ballot_sync(kAllLanes, told[g].stage == kAll);
                nearest = knowing ? 31 - __clz(int(knowing)) : 0;
                if (!(__ballot_sync(kAllLanes, told[g].stage == kNothing) >> nearest)) break;
                rest<pause_ns>();
                told[g] = look(end - kWarp * (g + 1) + lane);
            }
            const Carry these = joined_from<Op>(nearest, told[g].value, lane);
            found = begun ? Op::join(these, found) : these;
            begun = true;
            if (knowing) return found;
        }
    }
}
