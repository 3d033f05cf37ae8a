// Real rows as complex transforms: every point of a thread with that of the opposite sign.
#pragma once

#include "any_fft.cuh"

// others[k] becomes the point N - o where v[k] is point o, and 0 where o is: `part` by part through the room, which
// threads may still be reading if it is in_use. lower: only points up to N / 2 want theirs.
template <class Side, bool lower, class T, class Part>
__device__ __forceinline__ void exchange_opposites(Complex<T> (&v)[Side::held], Complex<T> (&others)[Side::held],
                                                   unsigned t, typename Side::Core::Word* room, bool in_use,
                                                   Part part) {
    using Core = typename Side::Core;
    if (in_use) meet<Core::Fft::together>();
    if (Core::Fft::writes(t)) {
        Side::for_each(t, [&](int k, unsigned o) {
            if (Core::is_padded && o >= Core::N) return;
            if (!lower || Side::is_below(k, o, 1) || !Side::is_below(k, o, (Core::N + 1) / 2))
                room[o * Core::Fft::stride] = part(v[k]);
        });
    }
    meet<Core::Fft::together>();
    Side::for_each(t, [&](int k, unsigned o) {
        if (Core::is_padded && o >= Core::N) return;
        if (!lower || Side::is_below(k, o, Core::N / 2 + 1))
            part(others[k]) = room[(o ? Core::N - o : 0) * Core::Fft::stride];
    });
}

// The same; a thread that has both butterflies of a pair needs no other thread
template <class Side, bool lower = false, class T>
__device__ __forceinline__ void find_opposites(Complex<T> (&v)[Side::held], Complex<T> (&others)[Side::held],
                                               unsigned t, typename Side::Core::Word* room, bool in_use) {
    if constexpr (Side::paired) {
        constexpr int R = Side::radix;
        const bool alone = Side::Core::Fft::base(Side::stage, 0, t) == 0;  // both are opposite to themselves
#pragma unroll
        for (int q = 0; q < R; ++q) {
            others[q] = alone ? v[(R - q) % R] : v[R + R - 1 - q];
            others[R + q] = alone ? v[R + R - 1 - q] : v[R - 1 - q];
        }
    } else if constexpr (Side::Core::Fft::split) {
        exchange_opposites<Side, lower>(v, others, t, room, in_use, [](Complex<T>& z) -> T& { return z.x; });
        exchange_opposites<Side, lower>(v, others, t, room, true, [](Complex<T>& z) -> T& { return z.y; });
    } else {
        exchange_opposites<Side, lower>(v, others, t, room, in_use, [](Complex<T>& z) -> Complex<T>& { return z; });
    }
}
