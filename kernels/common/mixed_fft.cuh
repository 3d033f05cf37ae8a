// Transforms of N points by G threads of a block, N any product of small primes: butterflies in registers, exchanges
// through shared memory (Stockham's autosort algorithm).
//
//     using Fft = MixedFft<float, 1000, 100, Stages<10, 10, 10>, false, false>;
//     Complex<float> v[Fft::held(0)], w[Fft::held(Fft::last)];
//     for_points<Fft, 0>(t, [&](int k, unsigned o) { v[k] = element o; });
//     mixed_fft<Fft>(v, w, t, room, in_use);
//     for_points<Fft, Fft::last>(t, [&](int k, unsigned o) { frequency o is w[k]; });
//
// A stage of radix R is N / R butterflies, of which thread t has numbers t, t + G, ...; the last of them may be none.
// columns: N / columns points of each, interleaved, are transformed by themselves: element o belongs to column
// o % columns. The stages are those of N points behind a stage of radix `columns`, but for their twiddle factors.
// paired: a stage of which a thread has butterflies b and N / R - b, and thread 0 those without another, 0 and
// N / (2 R): with point o it has point N - o. Other stages are as they would be.
// split: real parts are exchanged and then imaginary parts, through half of the room (section V-C of "Performance
// Tuning for GPU-Embedded Systems").
// spare: some threads have no problem. They give kNoThread + t, do as thread t of some problem does, and write nothing.
// room: where a problem's words lie; the next problem's are Fft::pitch further. With stride > 1, `stride` problems lie
// interleaved: their rooms are one word apart, and stride * Fft::pitch hold them all. Their threads are neighbours.
// in_use: threads of the problem may still be reading the room.
// Inverse transforms: swap real and imaginary parts before and after (see swapped).
#pragma once

#include "any_radix.cuh"
#include "threads.cuh"

constexpr unsigned kNoThread = 1u << 20;  // above the numbers of threads
constexpr int kNoStage = -1;

// Radices of the stages; ones at the end are none
template <int... radices>
struct Stages {
    static constexpr int most = sizeof...(radices);
    __device__ static constexpr int at(int stage) {
        const int list[] = {radices...};
        return stage < most ? list[stage] : 1;
    }
    __device__ static constexpr int counted() {
        int count = 1;
        while (at(count) > 1) ++count;
        return count;
    }
    static constexpr int count = counted();
    __device__ static constexpr int product(int stages) { return stages ? at(stages - 1) * product(stages - 1) : 1; }
};

// The same stages from the last to the first
template <class List>
struct Reversed {
    static constexpr int count = List::count;
    __device__ static constexpr int at(int stage) { return List::at(count - 1 - stage); }
    __device__ static constexpr int product(int stages) { return stages ? at(stages - 1) * product(stages - 1) : 1; }
};

template <class T, bool split>
struct WordOfPart {
    using type = Complex<T>;
};
template <class T>
struct WordOfPart<T, true> {
    using type = T;
};

// How many of the lanes that are served at once want the bank that most want, where lane b writes word
// b / Ns * (Ns R + skip) + b % Ns
__device__ constexpr int conflicts(int Ns, int R, int skip, int lanes) {
    int most = 0;
    for (int bank = 0; bank < lanes; ++bank) {
        int found = 0;
        for (int b = 0; b < lanes; ++b) found += (b / Ns * (Ns * R + skip) + b % Ns) % lanes == bank;
        most = found > most ? found : most;
    }
    return most;
}

// Words skipped after each Ns R: the fewest with which lanes disturb each other least, an eighth at most
__device__ constexpr int skip_of(int Ns, int R, int lanes) {
    const int limit = Ns == 1 && R < 8 ? 1 : Ns * R / 8;
    int best = 0;
    for (int skip = 1; skip <= limit && skip < lanes; ++skip)
        if (conflicts(Ns, R, skip, lanes) < conflicts(Ns, R, best, lanes)) best = skip;
    return best;
}

template <class T, int N_, int G_, class List, bool split_, bool spare_, int stride_ = 1, int paired_ = kNoStage,
          int columns_ = 1>
struct MixedFft {
    using Real = T;
    using Stages = List;
    using Word = typename WordOfPart<T, split_>::type;
    static constexpr int N = N_, G = G_, stride = stride_, last = List::count - 1;
    static constexpr int paired = paired_, columns = columns_;
    static constexpr bool split = split_, spare = spare_;
    static constexpr int banks = 128 / sizeof(Word), lanes = stride < banks ? banks / stride : 1;  // served at once
    // Threads that meet: of a warp, or of the block
    static constexpr int together = kWarp % (G * stride) == 0 ? G * stride : 2 * kWarp;
    static_assert(columns * List::product(List::count) == N, "the radices multiply up to N / columns");

    // Points that one butterfly of the stage before `stage` brought together, of all columns
    __device__ static constexpr int run(int stage) { return columns * List::product(stage); }
    __device__ static constexpr int butterflies(int stage) { return N / List::at(stage); }
    __device__ static constexpr int turns(int stage) { return (butterflies(stage) + G - 1) / G; }
    __device__ static constexpr int held(int stage) { return turns(stage) * List::at(stage); }
    static_assert(paired == kNoStage || (butterflies(paired) == 2 * G), "one pair for a thread");
    // A thread's butterfly i of a stage has number base + more, base < bound; it may be none where that depends on t
    __device__ static constexpr bool may_lack(int stage, int i) { return (i + 1) * G > butterflies(stage); }
    __device__ static constexpr int bound(int stage) { return stage == paired ? butterflies(stage) : G; }
    __device__ static constexpr int more(int stage, int i) { return stage == paired ? 0 : i * G; }
    __device__ static __forceinline__ unsigned base(int stage, int i, unsigned t) {
        const unsigned number = spare ? t % kNoThread : t;
        if (stage != paired || i == 0) return number;
        return number ? butterflies(stage) - number : butterflies(stage) / 2;
    }
    __device__ static __forceinline__ bool writes(unsigned t) { return !spare || t < kNoThread; }
    __device__ static constexpr int skip(int stage) { return skip_of(run(stage), List::at(stage), lanes); }
    __device__ static constexpr int padded() {
        int most = N;
        for (int stage = 0; stage < last; ++stage) {
            const int words = N + N / run(stage + 1) * skip(stage);
            most = words > most ? words : most;
        }
        return most;
    }
    // Problems that share a warp go on where the one before ends, as far as banks are concerned
    static constexpr int pitch = last == 0 ? N : padded() + (G < lanes ? ((G - padded()) % lanes + lanes) % lanes : 0);
};

// f(register, element) for what a thread holds before a stage; after the last stage, where element is a frequency
template <class Fft, int stage, class F>
__device__ __forceinline__ void for_points(unsigned t, F f) {
    constexpr int R = Fft::Stages::at(stage), apart = Fft::butterflies(stage);
#pragma unroll
    for (int i = 0; i < Fft::turns(stage); ++i) {
        const unsigned b = Fft::base(stage, i, t) + Fft::more(stage, i);
        if (!Fft::may_lack(stage, i) || b < apart) {
#pragma unroll
            for (int q = 0; q < R; ++q) f(i * R + q, b + q * apart);
        }
    }
}

// Whether element o, number k of what for_points gives for a stage, is below a bound: known to the compiler for most k
template <class Fft, int stage>
__device__ __forceinline__ bool is_below(int k, unsigned o, unsigned bound) {
    constexpr unsigned apart = Fft::butterflies(stage);
    const unsigned least = k % Fft::Stages::at(stage) * apart;
    return least + apart <= bound || (least < bound && o < bound);
}

// Whether base % n and more % n add up to n or more, where base is below `bound`
template <int n, int bound>
__device__ __forceinline__ bool carries(unsigned base, int more) {
    return more % n + (bound < n ? bound : n) > n && base % n + more % n >= n;
}

// base + more, with `longer` - n numbers left out after each n: known to the compiler are all but what base decides
template <int n, int longer, int bound>
__device__ __forceinline__ unsigned spread(unsigned base, int more) {
    if (longer == n) return base + more;
    return base / n * longer + base % n + (more / n * longer + more % n) +
           (carries<n, bound>(base, more) ? longer - n : 0);
}

// w and w^4 of a butterfly
template <class T>
struct Twiddle {
    Complex<T> w, fourth;
};

// Those of the butterfly `more` behind number base, whose own are given: turned by angles that the compiler knows
template <int R, int Ns, int more, int bound, class T>
__device__ __forceinline__ Twiddle<T> behind(Twiddle<T> first, unsigned base) {
    if constexpr (more % Ns == 0) {
        return first;
    } else {
        constexpr int n = Ns * R, ahead = more % Ns, back = ahead + n - Ns;  // back: where base % Ns + ahead >= Ns
        constexpr Complex<T> near = constant_root<T>(ahead, n), far = constant_root<T>(back, n);
        constexpr Complex<T> near4 = constant_root<T>(4 * ahead % n, n), far4 = constant_root<T>(4 * back % n, n);
        const bool wraps = carries<Ns, bound>(base, more);
        return {first.w * (wraps ? far : near), first.fourth * (wraps ? far4 : near4)};
    }
}

// Butterfly i of a stage and those behind it; first: of butterfly 0
template <class Fft, int stage, int i = 0, class T>
__device__ __forceinline__ void butterflies(Complex<T> (&v)[Fft::held(stage)], unsigned t, Twiddle<T> first = {}) {
    constexpr int R = Fft::Stages::at(stage), Ns = Fft::Stages::product(stage), more = Fft::more(stage, i);
    const unsigned base = Fft::base(stage, i, t);
    constexpr int columns = Fft::columns, bound = (Fft::bound(stage) + columns - 1) / columns;
    constexpr bool alone = stage == Fft::paired || Fft::G % columns;  // factors do not follow from those of another
    if constexpr (Ns > 1 && (i == 0 || alone)) {
        const unsigned turn = (base + more) / columns % Ns;
        first.w = root<T, Ns * R, R>(turn);
        first.fourth = R > 8 ? root<T, Ns * R, R / 4>(4 * turn) : first.w;
    }
    if (!Fft::may_lack(stage, i) || base + more < Fft::butterflies(stage)) {
        Complex<T> u[R];
#pragma unroll
        for (int q = 0; q < R; ++q) u[q] = v[i * R + q];
        if constexpr (Ns > 1) {
            const Twiddle<T> own = behind<R, Ns, alone ? 0 : more / columns, bound>(first, base / columns);
            twist<R>(u, own.w, own.fourth);
        }
        transform<R>(u);
#pragma unroll
        for (int q = 0; q < R; ++q) v[i * R + q] = u[q];
    }
    if constexpr (i + 1 < Fft::turns(stage)) butterflies<Fft, stage, i + 1>(v, t, first);
}

// t as a number of which the compiler knows nothing: what follows from it is computed behind this place, as registers
// that hold it from the beginning would be missing for points in flight
__device__ __forceinline__ unsigned afresh(unsigned t) {
    asm volatile("" : "+r"(t));
    return t;
}

// The results of a stage come to the room
template <class Fft, int stage, class T, class Part>
__device__ __forceinline__ void give(Complex<T> (&v)[Fft::held(stage)], unsigned t, typename Fft::Word* room,
                                     Part part) {
    constexpr int R = Fft::Stages::at(stage), Ns = Fft::run(stage), longer = Ns * R + Fft::skip(stage);
    if (!Fft::writes(t)) return;
#pragma unroll
    for (int i = 0; i < Fft::turns(stage); ++i) {
        const unsigned base = Fft::base(stage, i, t), more = Fft::more(stage, i);
        if (!Fft::may_lack(stage, i) || base + more < Fft::butterflies(stage)) {
            typename Fft::Word* const to = room + spread<Ns, longer, Fft::bound(stage)>(base, more) * Fft::stride;
#pragma unroll
            for (int q = 0; q < R; ++q) to[q * Ns * Fft::stride] = part(v[i * R + q]);
        }
    }
}

// The points before the stage behind `stage` come from the room
template <class Fft, int stage, class T, class Part>
__device__ __forceinline__ void take(Complex<T> (&w)[Fft::held(stage + 1)], unsigned t, typename Fft::Word* room,
                                     Part part) {
    constexpr int run = Fft::run(stage + 1), longer = run + Fft::skip(stage);
    constexpr int R = Fft::Stages::at(stage + 1), apart = Fft::butterflies(stage + 1);
#pragma unroll
    for (int i = 0; i < Fft::turns(stage + 1); ++i) {
        const unsigned base = Fft::base(stage + 1, i, t), more = Fft::more(stage + 1, i);
        if (!Fft::may_lack(stage + 1, i) || base + more < apart) {
            const typename Fft::Word* const from =
                room + spread<run, longer, Fft::bound(stage + 1)>(base, more) * Fft::stride;
#pragma unroll
            for (int q = 0; q < R; ++q) part(w[i * R + q]) = from[q * (apart / run * longer) * Fft::stride];
        }
    }
}

// The results of a stage of `rows` problems come to where the next stage wants them, `part` by part
template <class Fft, int stage, int rows, class T, class Part>
__device__ __forceinline__ void exchange(Complex<T> (&v)[rows][Fft::held(stage)],
                                         Complex<T> (&w)[rows][Fft::held(stage + 1)], unsigned t,
                                         typename Fft::Word* room, bool in_use, Part part) {
    constexpr int apart = Fft::pitch * Fft::stride;
    if (in_use) meet<Fft::together>();
#pragma unroll
    for (int row = 0; row < rows; ++row) give<Fft, stage>(v[row], t, room + row * apart, part);
    meet<Fft::together>();
#pragma unroll
    for (int row = 0; row < rows; ++row) take<Fft, stage>(w[row], t, room + row * apart, part);
}

// v, the points of `rows` problems before stage `stage`, become those after the last one, in w. Problems of the same
// threads lie in rooms Fft::stride * Fft::pitch words apart, and exchange together: barriers are those of one.
template <class Fft, int stage = 0, int rows, class T>
__device__ __forceinline__ void mixed_fft(Complex<T> (&v)[rows][Fft::held(stage)],
                                          Complex<T> (&w)[rows][Fft::held(Fft::last)], unsigned t,
                                          typename Fft::Word* room, bool in_use) {
#pragma unroll
    for (int row = 0; row < rows; ++row) butterflies<Fft, stage>(v[row], t);
    if constexpr (stage == Fft::last) {
#pragma unroll
        for (int row = 0; row < rows; ++row) {
#pragma unroll
            for (int k = 0; k < Fft::held(stage); ++k) w[row][k] = v[row][k];
        }
    } else {
        Complex<T> next[rows][Fft::held(stage + 1)];
        if constexpr (Fft::split) {
            exchange<Fft, stage>(v, next, t, room, in_use, [](Complex<T>& z) -> T& { return z.x; });
            exchange<Fft, stage>(v, next, t, room, true, [](Complex<T>& z) -> T& { return z.y; });
        } else {
            exchange<Fft, stage>(v, next, t, room, in_use, [](Complex<T>& z) -> Complex<T>& { return z; });
        }
        mixed_fft<Fft, stage + 1>(next, w, afresh(t), room, true);
    }
}

// The same of one problem
template <class Fft, class T>
__device__ __forceinline__ void mixed_fft(Complex<T> (&v)[Fft::held(0)], Complex<T> (&w)[Fft::held(Fft::last)],
                                          unsigned t, typename Fft::Word* room, bool in_use) {
    using From = Complex<T>[1][Fft::held(0)];
    using To = Complex<T>[1][Fft::held(Fft::last)];
    mixed_fft<Fft, 0>(reinterpret_cast<From&>(v), reinterpret_cast<To&>(w), t, room, in_use);
}
