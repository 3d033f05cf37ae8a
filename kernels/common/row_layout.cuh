// How the rows of a kernel's arrays lie in memory: one parameter of the kernel, whose template parameters kernel.toml
// fills with {row_align} and {in_place}.
#pragma once

// An array whose rows begin `pitch` elements apart.
template <class T>
struct PitchedRows {
    T* first;
    long long pitch;
};

//   arrays    of the kernel, in the order of `pitch`
//   aligned   0: rows follow each other, and `pitch` is not read. Else those of array k are pitch[k] elements apart, and
//             begin at multiples of `aligned` elements
//   in_place  the output takes the place of an input
template <int arrays, int aligned_, bool in_place_>
struct RowLayout {
    static constexpr int aligned = aligned_;
    static constexpr bool apart = aligned > 0, in_place = in_place_;
    long long pitch[arrays];

    // Elements from one row of array k to the next, of which `length` are a row's own.
    template <class Length>
    __device__ __forceinline__ auto pitch_of(int k, Length length) const {
        if constexpr (apart)
            return pitch[k];
        else
            return length;
    }

    // Array k with its pitch, or as it is where rows follow each other
    template <class T>
    __device__ __forceinline__ auto rows_of(int k, T* array) const {
        if constexpr (apart)
            return PitchedRows<T>{array, pitch[k]};
        else
            return array;
    }

    // Where an input is read. In place that is the output, so that no other pointer leads to its memory.
    template <class T>
    static __device__ __forceinline__ const T* source(const T* input, T* output) {
        return in_place ? output : input;
    }
};

// Rows that follow each other, of arrays that share no memory.
using DenseRows = RowLayout<1, 0, false>;
