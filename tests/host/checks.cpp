// What the compiler calls in code built with -fsanitize=thread and -fsanitize=undefined: bounds, races, undefined
// behaviour. Whatever is found ends the launch with a message.
#include "checks.h"

#include <cstdio>
#include <vector>

namespace cuda_host {

namespace checks {

bool watching;

namespace {

struct Array {
    Span span;
    bool writable;
    std::size_t position;  // among the arguments
};

std::vector<Array> arrays;
Span statics, dynamic, image;

// Says where the access lies, by the nearest array or shared memory.
[[noreturn]] void stray(const char* address, std::size_t bytes, bool writes, const void* place) {
    Array nearest{{}, false, 0};
    const char* what = "argument";
    std::size_t away = 4096;
    auto look = [&](const Array& array, const char* name) {
        const std::size_t distance = array.span.begin > address ? std::size_t(array.span.begin - address)
                                     : address >= array.span.end ? std::size_t(address - array.span.end)
                                                                 : 0;
        if (array.span.begin && distance < away) away = distance, nearest = array, what = name;
    };
    for (const Array& array : arrays) look(array, "argument");
    look({dynamic, true, 0}, "dynamic shared memory");
    look({statics, true, 0}, "static shared memory");
    const char* const verb = writes ? "writes" : "reads";
    if (!nearest.span.begin) fail_with("%s %zu bytes far from any array [%#lx]", verb, bytes, offset_of(place));
    char number[24] = "";
    if (what[0] == 'a') std::snprintf(number, sizeof number, " %zu", nearest.position);
    fail_with("%s %zu bytes [%#lx] %zu bytes %s of %s%s, which has %zu", verb, bytes, offset_of(place), away,
              address < nearest.span.begin ? "before the start" : "past the end", what, number, nearest.span.bytes());
}

bool is_read_only(const char* address, std::size_t bytes, bool writes, const void* place) {
    for (const Array& array : arrays) {
        if (array.writable || !array.span.holds(address, bytes)) continue;
        if (writes) fail_with("writes to argument %zu [%#lx], a read-only array", array.position, offset_of(place));
        return true;
    }
    return false;
}

}  // namespace

void launch_begins(const Argument* arguments, std::size_t count, Span statics_, Span dynamic_) {
    statics = statics_, dynamic = dynamic_, image = loaded(false);
    races::watch(statics, "static shared memory");
    races::watch(dynamic, "dynamic shared memory");
    arrays.clear();
    for (std::size_t i = 0; i < count; ++i) {
        if (!arguments[i].is_pointer) continue;
        const char* const begin = *static_cast<const char* const*>(arguments[i].value);
        arrays.push_back({{begin, begin + arguments[i].extent}, bool(arguments[i].writable), i});
        if (arguments[i].writable) races::watch(arrays.back().span, "an array");
    }
}

void launch_ends() { races::launch_ends(); }
void block_begins() { races::block_met(); }
void block_met() { races::block_met(); }
void warp_met(int first, unsigned lanes) { races::warp_met(first, lanes); }
void arrived(const void* barrier, bool last) { races::arrived(barrier, last); }
void passed(const void* barrier) { races::passed(barrier); }

static void access_outside(const char* address, std::size_t bytes, bool writes, const void* place) {
    if (races::access(address, bytes, writes, place) || is_read_only(address, bytes, writes, place)) return;
    if (!writes && image.holds(address, bytes)) return;
    stray(address, bytes, writes, place);
}

// Most accesses are to a thread's own stack.
static inline void access(const void* where, std::size_t bytes, bool writes, const void* place) {
    const char* const address = static_cast<const char*>(where);
    if (watching && !running_stack.holds(address, bytes)) access_outside(address, bytes, writes, place);
}

void atomic_access(const void* where, std::size_t bytes, int line) {
    const char* const address = static_cast<const char*>(where);
    bool inside = statics.holds(address, bytes) || dynamic.holds(address, bytes);
    for (const Array& array : arrays) inside = inside || (array.writable && array.span.holds(address, bytes));
    if (!inside) fail_with("line %d: an atomic function outside of any array that may be written", line);
}

}  // namespace checks

}  // namespace cuda_host

using cuda_host::checks::access;

#define PLACE __builtin_return_address(0)
#define HOOKS(kind, bytes)                                                                               \
    extern "C" void __tsan_##kind##read##bytes(void* address) { access(address, bytes, false, PLACE); }  \
    extern "C" void __tsan_##kind##write##bytes(void* address) { access(address, bytes, true, PLACE); }

HOOKS(, 1)
HOOKS(, 2)
HOOKS(, 4)
HOOKS(, 8)
HOOKS(, 16)
HOOKS(unaligned_, 2)
HOOKS(unaligned_, 4)
HOOKS(unaligned_, 8)
HOOKS(unaligned_, 16)
extern "C" void __tsan_read_range(void* address, std::size_t bytes) { access(address, bytes, false, PLACE); }
extern "C" void __tsan_write_range(void* address, std::size_t bytes) { access(address, bytes, true, PLACE); }
extern "C" void __tsan_func_entry(void*) {}
extern "C" void __tsan_func_exit() {}
extern "C" void __tsan_init() {}

// UndefinedBehaviorSanitizer's handlers; each is given first where it happened.
struct UndefinedPlace {
    const char* file;
    unsigned line, column;
};
#define UNDEFINED(handler, what)                                            \
    extern "C" void __ubsan_handle_##handler(const UndefinedPlace* place) { \
        cuda_host::fail_with("%s:%u: %s", place->file, place->line, what);  \
    }

UNDEFINED(out_of_bounds, "index outside of an array")
UNDEFINED(shift_out_of_bounds, "shift by more bits than there are, or of a negative number")
UNDEFINED(add_overflow, "signed overflow in an addition")
UNDEFINED(sub_overflow, "signed overflow in a subtraction")
UNDEFINED(mul_overflow, "signed overflow in a multiplication")
UNDEFINED(negate_overflow, "signed overflow in a negation")
UNDEFINED(divrem_overflow, "division by zero, or overflow in it")
UNDEFINED(float_cast_overflow, "a number that its new type does not hold")
UNDEFINED(load_invalid_value, "a bool or enum that is none of its values")
UNDEFINED(type_mismatch_v1, "misaligned address")
UNDEFINED(builtin_unreachable, "a place said to be unreachable")
UNDEFINED(missing_return, "a function that ends without its value")
