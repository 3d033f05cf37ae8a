// What the compiler calls in code built with -fsanitize=thread and -fsanitize=undefined: bounds, races, undefined
// behaviour. Whatever is found ends the launch with a message.
#include "checks.h"

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

// How far the access lies from the nearest array or shared memory, for the message.
void stray(const char* address, std::size_t bytes, bool writes, const void* place) {
    std::size_t nearest = 4096;
    const char* what = "far from any array";
    std::size_t position = 0, extent = 0;
    auto look = [&](Span span, const char* name, std::size_t number) {
        const std::size_t ahead = std::size_t(span.begin - address), behind = std::size_t(address - span.end);
        const std::size_t away = address < span.begin ? ahead : address >= span.end ? behind : 0;
        if (!span.begin || away >= nearest) return;
        nearest = away, what = name, position = number, extent = span.bytes();
    };
    for (const Array& array : arrays) look(array.span, "argument", array.position);
    look(dynamic, "dynamic shared memory", 0);
    look(statics, "static shared memory", 0);
    const char* const verb = writes ? "writes" : "reads";
    if (what[0] == 'f') fail_with("%s %zu bytes [%#lx] %s", verb, bytes, offset_of(place), what);
    fail_with("%s %zu bytes [%#lx], %zu bytes outside of %s %zu (%zu bytes)", verb, bytes, offset_of(place), nearest, what,
              position, extent);
}

bool in_bounds(const char* address, std::size_t bytes, bool writes, const void* place) {
    for (const Array& array : arrays) {
        if (!array.span.holds(address, bytes)) continue;
        if (writes && !array.writable)
            fail_with("writes to argument %zu [%#lx], a read-only array", array.position, offset_of(place));
        return true;
    }
    return false;
}

}  // namespace

void launch_begins(const Argument* arguments, std::size_t count, Span statics_, Span dynamic_) {
    arrays.clear();
    for (std::size_t i = 0; i < count; ++i) {
        if (!arguments[i].is_pointer) continue;
        const char* const begin = *static_cast<const char* const*>(arguments[i].value);
        arrays.push_back({{begin, begin + arguments[i].extent}, bool(arguments[i].writable), i});
    }
    statics = statics_, dynamic = dynamic_, image = loaded(false);
    races::launch_begins(statics, dynamic);
}

void block_begins() { races::block_met(); }
void block_met() { races::block_met(); }
void warp_met(int first, unsigned lanes) { races::warp_met(first, lanes); }

void access(const void* where, std::size_t bytes, bool writes, const void* place) {
    const char* const address = static_cast<const char*>(where);
    if (!watching || own_stack().holds(address, bytes)) return;
    if (races::watches(address, bytes)) return races::access(address, bytes, writes, place);
    if (in_bounds(address, bytes, writes, place)) return;
    if (!writes && image.holds(address, bytes)) return;
    stray(address, bytes, writes, place);
}

void atomic_access(const void* where, std::size_t bytes, int line) {
    const char* const address = static_cast<const char*>(where);
    if (races::watches(address, bytes) || in_bounds(address, bytes, true, nullptr)) return;
    fail_with("line %d: an atomic function outside of any array", line);
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
