// What the check of an answer does on the GPU beside running the kernel: makes inputs, proves that inputs and
// surroundings of arrays were left alone, compares answers, and tests the laws that right answers obey.
//
// Arrays of every type are read as double precision, so that one compilation serves all; complex numbers are two
// parts in a row. A *row* is what is judged by one scale: a problem, or a chunk of the array. A warp reduces a
// *piece* of a row to four partial results, and `judge` the pieces of a row to its error. What is not finite is
// an infinite error. Kernels are templates, so that each is compiled only where it is named, all at a time.

typedef unsigned long long u64;

constexpr unsigned ALL = 0xffffffffu;
constexpr int LANES = 32;
constexpr int CHANNELS = 4;
constexpr u64 GOLDEN = 0x9e3779b97f4a7c15ull;
constexpr unsigned char GUARD = 0xa5;

enum Kind { BOOL, INT8, UINT8, INT16, UINT16, INT32, UINT32, INT64, UINT64, FLOAT16, FLOAT32, FLOAT64 };
enum Draw { UNIFORM, NORMAL, WHOLE };
enum Norm { MAXIMUM, EUCLIDEAN, ELEMENT, COUNT };
enum Judgement { BY_MAXIMUM, BY_NORM, BY_WORST, BY_COUNT, SUMS, SYSTEM, TRANSFORM };

// --- numbers of any type ------------------------------------------------------------------------

__device__ double infinity() { return __longlong_as_double(0x7ff0000000000000ll); }

__device__ double finite(double error) { return error < infinity() ? error : infinity(); } // NaN compares false

__device__ double from_half(unsigned bits) {
    const int exponent = bits >> 10 & 31, fraction = bits & 1023;
    double value = exponent ? (1024 + fraction) * 0x1p-25 * (1u << exponent) : fraction * 0x1p-24;
    if (exponent == 31) value = fraction ? infinity() - infinity() : infinity();
    return bits >> 15 ? -value : value;
}

__device__ double number(int kind, const void* base, long long i) {
    switch (kind) {
    case FLOAT32: return static_cast<const float*>(base)[i];
    case FLOAT64: return static_cast<const double*>(base)[i];
    case FLOAT16: return from_half(static_cast<const unsigned short*>(base)[i]);
    case INT8: return static_cast<const signed char*>(base)[i];
    case INT16: return static_cast<const short*>(base)[i];
    case UINT16: return static_cast<const unsigned short*>(base)[i];
    case INT32: return static_cast<const int*>(base)[i];
    case UINT32: return static_cast<const unsigned*>(base)[i];
    case INT64: return static_cast<double>(static_cast<const long long*>(base)[i]);
    case UINT64: return static_cast<double>(static_cast<const u64*>(base)[i]);
    default: return static_cast<const unsigned char*>(base)[i];
    }
}

// Whole numbers as they wrap in 64 bits.
__device__ u64 whole(int kind, const void* base, long long i) {
    if (kind == INT64 || kind == UINT64) return static_cast<const u64*>(base)[i];
    return static_cast<u64>(static_cast<long long>(number(kind, base, i)));
}

__device__ u64 bits_of(int kind) {
    switch (kind) {
    case INT8: case UINT8: case BOOL: return 0xff;
    case INT16: case UINT16: return 0xffff;
    case INT32: case UINT32: return 0xffffffff;
    default: return ~0ull;
    }
}

// Half precision is given by truncation: random values need no more.
__device__ unsigned short to_half(double value) {
    const unsigned sign = value < 0 ? 0x8000 : 0;
    double size = value < 0 ? -value : value;
    int exponent = 15;
    for (; size >= 2 && exponent < 30; ++exponent) size /= 2;
    for (; size < 1 && exponent > 1; --exponent) size *= 2;
    const unsigned fraction = static_cast<unsigned>(size * 1024);
    return static_cast<unsigned short>(sign | (fraction < 1024 ? fraction : exponent << 10 | (fraction & 1023)));
}

__device__ void store(int kind, void* base, long long i, double value) {
    switch (kind) {
    case FLOAT32: static_cast<float*>(base)[i] = static_cast<float>(value); break;
    case FLOAT64: static_cast<double*>(base)[i] = value; break;
    case FLOAT16: static_cast<unsigned short*>(base)[i] = to_half(value); break;
    case INT16: case UINT16: static_cast<short*>(base)[i] = static_cast<short>(static_cast<int>(value)); break;
    case INT32: static_cast<int*>(base)[i] = static_cast<int>(value); break;
    case UINT32: static_cast<unsigned*>(base)[i] = static_cast<unsigned>(value); break;
    case INT64: case UINT64: static_cast<long long*>(base)[i] = static_cast<long long>(value); break;
    default: static_cast<signed char*>(base)[i] = static_cast<signed char>(static_cast<int>(value));
    }
}

__device__ double magnitude(int kind, int parts, const void* base, long long i) {
    if (parts == 1) return fabs(number(kind, base, i));
    const double re = number(kind, base, 2 * i), im = number(kind, base, 2 * i + 1);
    return sqrt(re * re + im * im);
}

__device__ double distance(int kind, int parts, const void* right, const void* given, long long i) {
    if (parts == 2) {
        const double re = number(kind, right, 2 * i) - number(kind, given, 2 * i);
        const double im = number(kind, right, 2 * i + 1) - number(kind, given, 2 * i + 1);
        return sqrt(re * re + im * im);
    }
    const double difference = fabs(number(kind, right, i) - number(kind, given, i));
    if (kind != INT64 && kind != UINT64) return difference;
    return whole(kind, right, i) == whole(kind, given, i) ? 0.0 : fmax(1.0, difference); // rounding hides none
}

// Whether two numbers differ; infinities may be the same.
__device__ bool differs(int kind, int parts, const void* right, const void* given, long long i) {
    if (kind == INT64 || kind == UINT64) return whole(kind, right, i) != whole(kind, given, i);
    bool same = number(kind, right, parts * i) == number(kind, given, parts * i);
    if (parts == 2) same = same && number(kind, right, 2 * i + 1) == number(kind, given, 2 * i + 1);
    return !same;
}

// --- inputs and what must not change ------------------------------------------------------------

// splitmix64 (Steele, Lea, Flood: Fast splittable pseudorandom number generators, OOPSLA 2014): the output of
// state `seed + (i + 1) GOLDEN`, so that every element is drawn by itself.
__device__ u64 mixed(u64 z) {
    z = (z ^ z >> 30) * 0xbf58476d1ce4e5b9ull;
    z = (z ^ z >> 27) * 0x94d049bb133111ebull;
    return z ^ z >> 31;
}

__device__ long long first_index() { return blockIdx.x * static_cast<long long>(blockDim.x) + threadIdx.x; }
__device__ long long index_stride() { return gridDim.x * static_cast<long long>(blockDim.x); }

// Uniform in [low, low + width), rounded down for whole numbers; or pairs of normal values of mean `low` and
// deviation `width` by the method of Box and Muller.
template <typename = void> __global__ void fill(int kind, int draw, void* array, long long count, u64 seed, double low, double width) {
    if (draw == NORMAL) {
        for (long long pair = first_index(); 2 * pair < count; pair += index_stride()) {
            const u64 bits = mixed(seed + (pair + 1) * GOLDEN);
            const float radius = sqrtf(-2.0f * logf((static_cast<float>(bits >> 32) + 0.5f) * 0x1p-32f));
            float sine, cosine;
            sincospif(static_cast<float>(bits & ALL) * 0x1p-31f, &sine, &cosine);
            store(kind, array, 2 * pair, low + width * (static_cast<double>(radius) * cosine));
            if (2 * pair + 1 < count) store(kind, array, 2 * pair + 1, low + width * (static_cast<double>(radius) * sine));
        }
        return;
    }
    for (long long i = first_index(); i < count; i += index_stride()) {
        const double drawn = static_cast<double>(mixed(seed + (i + 1) * GOLDEN) >> 11) * 0x1p-53;
        store(kind, array, i, low + (draw == WHOLE ? floor(width * drawn) : width * drawn));
    }
}

// Makes uniform a, b, c rows of diagonally dominant systems: |b| = |a| + |c| + margin + u, with b's sign.
template <typename = void> __global__ void dominate(
    int kind, void* a, void* b, void* c, long long rows, long long length, double margin) {
    for (long long i = first_index(); i < rows * length; i += index_stride()) {
        const long long column = i % length;
        if (column == 0) store(kind, a, i, 0);
        if (column == length - 1) store(kind, c, i, 0);
        const double drawn = number(kind, b, i), twice = 2 * fabs(drawn);
        const double size = twice - floor(twice) + margin + fabs(number(kind, a, i)) + fabs(number(kind, c, i));
        store(kind, b, i, drawn < 0 ? -size : size);
    }
}

// Adds a hash of the bytes, with their places, to `sum`.
template <typename = void> __global__ void digest(const u64* words, long long bytes, u64* sum) {
    u64 mine = 0;
    for (long long i = first_index(); i < bytes / 8; i += index_stride()) mine += mixed(words[i] + (i + 1) * GOLDEN);
    const unsigned char* tail = reinterpret_cast<const unsigned char*>(words);
    const long long place = bytes / 8 * 8 + first_index();
    if (place < bytes) mine += mixed(tail[place] - (place + 1) * GOLDEN);
    for (int step = LANES / 2; step; step /= 2) mine += __shfl_xor_sync(ALL, mine, step);
    if (threadIdx.x % LANES == 0) atomicAdd(sum, mine);
}

// Adds the number of guard bytes that changed, at both ends of an array, to `count`.
template <typename = void> __global__ void guarded(const unsigned char* raw, long long bytes, int edge, u64* count) {
    for (long long i = first_index(); i < edge; i += index_stride()) {
        const int changed = (raw[i] != GUARD) + (raw[bytes - edge + i] != GUARD);
        if (changed) atomicAdd(count, static_cast<u64>(changed));
    }
}

// --- comparisons and laws -----------------------------------------------------------------------

struct Piece {
    long long index, row, begin, end; // elements of the whole array
};

__device__ Piece piece_of_warp(long long total, long long length, int pieces, int piece_length) {
    Piece piece;
    piece.index = first_index() / LANES;
    piece.row = piece.index / pieces;
    const long long row_end = (piece.row + 1) * length;
    piece.begin = piece.row * length + piece.index % pieces * piece_length;
    piece.end = piece.begin + piece_length < row_end ? piece.begin + piece_length : row_end;
    if (piece.end > total) piece.end = total;
    return piece;
}

// Reduces the lanes' channels and stores them; bits of `maxima` are set for channels that are maxima, not sums.
__device__ void reduce(double (&channels)[CHANNELS], unsigned maxima, double* to) {
    for (int channel = 0; channel < CHANNELS; ++channel) {
        for (int step = LANES / 2; step; step /= 2) {
            const double other = __shfl_xor_sync(ALL, channels[channel], step);
            if (maxima >> channel & 1) channels[channel] = fmax(channels[channel], other);
            else channels[channel] += other;
        }
        if (to != nullptr && threadIdx.x % LANES == 0) to[channel] = channels[channel];
    }
}

__device__ double scale(double size) { return size > 0 ? size : 1.0; }

__device__ double row_mean(const double* sums, long long row, int pieces, long long elements) {
    double sum = 0;
    for (int piece = threadIdx.x % LANES; piece < pieces; piece += LANES) sum += sums[CHANNELS * (row * pieces + piece)];
    for (int step = LANES / 2; step; step /= 2) sum += __shfl_xor_sync(ALL, sum, step);
    return sum / elements;
}

// Partial sums of magnitudes, for the mean magnitude of each row.
template <typename = void> __global__ void magnitudes(
    int kind, int parts, const void* array, long long total, long long length, int pieces, int piece_length, double* partial) {
    const Piece piece = piece_of_warp(total, length, pieces, piece_length);
    if (piece.row * length >= total) return;
    double channels[CHANNELS] = {0, 0, 0, 0};
    for (long long i = piece.begin + threadIdx.x % LANES; i < piece.end; i += LANES)
        channels[0] += magnitude(kind, parts, array, i);
    reduce(channels, 0, partial + CHANNELS * piece.index);
}

// Differences of an answer from the right one; `sums` are the right one's `magnitudes`, for ELEMENT only.
template <typename = void> __global__ void compare(
    int kind, int parts, int norm, const void* right, const void* given, long long total, long long length, int pieces,
    int piece_length, const double* sums, double* partial) {
    const Piece piece = piece_of_warp(total, length, pieces, piece_length);
    if (piece.row * length >= total) return;
    const long long row_end = (piece.row + 1) * length < total ? (piece.row + 1) * length : total;
    const double mean = norm == ELEMENT ? row_mean(sums, piece.row, pieces, row_end - piece.row * length) : 0;
    double channels[CHANNELS] = {0, 0, 0, 0};
    for (long long i = piece.begin + threadIdx.x % LANES; i < piece.end; i += LANES) {
        if (norm == COUNT) {
            channels[0] += differs(kind, parts, right, given, i);
            continue;
        }
        const double error = finite(distance(kind, parts, right, given, i));
        const double size = magnitude(kind, parts, right, i);
        if (norm == MAXIMUM) {
            channels[0] = fmax(channels[0], error);
            channels[1] = fmax(channels[1], size);
        } else if (norm == EUCLIDEAN) {
            channels[0] += error * error;
            channels[1] += size * size;
        } else {
            channels[0] = fmax(channels[0], finite(error / scale(fmax(size, mean))));
        }
    }
    reduce(channels, norm == EUCLIDEAN || norm == COUNT ? 0 : 3, partial + CHANNELS * piece.index);
}

// Prefix sums y of x: neighbours differ by the element between them, the last is the total. Exclusive ones are
// judged after their elements are added to them. Of whole numbers, violations are counted.
template <typename = void> __global__ void sums_law(
    int x_kind, int y_kind, const void* x, const void* y, int exclusive, int counted, long long total, long long length,
    int pieces, int piece_length, double* partial) {
    const Piece piece = piece_of_warp(total, length, pieces, piece_length);
    if (piece.row * length >= total) return;
    double channels[CHANNELS] = {0, 0, 0, 0};
    for (long long i = piece.begin + threadIdx.x % LANES; i < piece.end; i += LANES) {
        const bool first = i % length == 0;
        if (counted) {
            u64 jump = whole(x_kind, x, i) - whole(y_kind, y, i) - (exclusive ? whole(x_kind, x, i) : 0);
            if (!first) jump += whole(y_kind, y, i - 1) + (exclusive ? whole(x_kind, x, i - 1) : 0);
            channels[0] += (jump & bits_of(y_kind)) != 0;
            continue;
        }
        const double element = number(x_kind, x, i);
        const double sum = number(y_kind, y, i) + (exclusive ? element : 0);
        const double before = first ? 0 : number(y_kind, y, i - 1) + (exclusive ? number(x_kind, x, i - 1) : 0);
        channels[0] = fmax(channels[0], finite(fabs(element - sum + before)));
        channels[1] += element;
        channels[2] = fmax(channels[2], fabs(sum));
        if ((i + 1) % length == 0) channels[3] = sum;
    }
    reduce(channels, counted ? 0 : 5, partial + CHANNELS * piece.index);
}

// Solutions x of tridiagonal systems: the defect, the norm of the matrix, and that of the solution.
template <typename = void> __global__ void system_law(
    int kind, const void* a, const void* b, const void* c, const void* d, const void* x, long long total, long long length,
    int pieces, int piece_length, double* partial) {
    const Piece piece = piece_of_warp(total, length, pieces, piece_length);
    if (piece.row * length >= total) return;
    double channels[CHANNELS] = {0, 0, 0, 0};
    for (long long i = piece.begin + threadIdx.x % LANES; i < piece.end; i += LANES) {
        const double below = number(kind, a, i), on = number(kind, b, i), above = number(kind, c, i);
        const double here = number(kind, x, i);
        double defect = on * here - number(kind, d, i);
        if (i % length) defect += below * number(kind, x, i - 1);
        if ((i + 1) % length) defect += above * number(kind, x, i + 1);
        channels[0] = fmax(channels[0], finite(fabs(defect)));
        channels[1] = fmax(channels[1], fabs(below) + fabs(on) + fabs(above));
        channels[2] = fmax(channels[2], fabs(here));
    }
    reduce(channels, 7, partial + CHANNELS * piece.index);
}

// Transforms y of x: the squares of Parseval's law, and v . y - w . x for a random v and its transform w.
template <typename = void> __global__ void transform_law(
    int kind, const void* x, const void* y, const double* v, const double* w, long long total, long long length, int pieces,
    int piece_length, double* partial) {
    const Piece piece = piece_of_warp(total, length, pieces, piece_length);
    if (piece.row * length >= total) return;
    double channels[CHANNELS] = {0, 0, 0, 0};
    for (long long i = piece.begin + threadIdx.x % LANES; i < piece.end; i += LANES) {
        const long long column = i % length;
        const double x_re = number(kind, x, 2 * i), x_im = number(kind, x, 2 * i + 1);
        const double y_re = number(kind, y, 2 * i), y_im = number(kind, y, 2 * i + 1);
        const double v_re = v[2 * column], v_im = v[2 * column + 1];
        const double w_re = w[2 * column], w_im = w[2 * column + 1];
        channels[0] += x_re * x_re + x_im * x_im;
        channels[1] += y_re * y_re + y_im * y_im;
        channels[2] += y_re * v_re - y_im * v_im - (x_re * w_re - x_im * w_im);
        channels[3] += y_re * v_im + y_im * v_re - (x_re * w_im + x_im * w_re);
    }
    reduce(channels, 0, partial + CHANNELS * piece.index);
}

// Errors of rows from the partial results of their pieces; keeps the worst, as the bits of a float before the
// complement of its row. `factor` is the growth of norms by a transform, `spread` the part of its functional.
template <typename = void> __global__ void judge(
    int judgement, const double* partial, long long rows, int pieces, double factor, double spread, u64* worst) {
    const long long row = first_index() / LANES;
    if (row >= rows) return;
    const unsigned maxima = judgement == BY_MAXIMUM ? 3 : judgement == BY_WORST ? 1 : judgement == SUMS ? 5 : judgement == SYSTEM ? 7 : 0;
    double channels[CHANNELS] = {0, 0, 0, 0};
    for (int piece = threadIdx.x % LANES; piece < pieces; piece += LANES) {
        for (int channel = 0; channel < CHANNELS; ++channel) {
            const double part = partial[CHANNELS * (row * pieces + piece) + channel];
            if (maxima >> channel & 1) channels[channel] = fmax(channels[channel], part);
            else channels[channel] += part;
        }
    }
    reduce(channels, maxima, nullptr);
    double error = channels[0];
    if (judgement == BY_MAXIMUM) error /= scale(channels[1]);
    if (judgement == BY_NORM) error = sqrt(error) / scale(sqrt(channels[1]));
    if (judgement == SUMS) error = fmax(error, finite(fabs(channels[3] - channels[1]))) / 2 / scale(channels[2]);
    if (judgement == SYSTEM) error /= scale(channels[1] * channels[2]);
    if (judgement == TRANSFORM) {
        const double right = sqrt(channels[0]) * factor, parseval = fabs(sqrt(channels[1]) - right);
        const double functional = sqrt(channels[2] * channels[2] + channels[3] * channels[3]) * spread;
        error = fmax(finite(parseval), finite(functional)) / scale(right);
    }
    if (threadIdx.x % LANES == 0) {
        const u64 key = static_cast<u64>(__float_as_uint(static_cast<float>(finite(error)))) << 32;
        atomicMax(worst, key | (ALL - static_cast<unsigned>(row)));
    }
}
