// Runs launches of units built with AddressSanitizer, which cannot be loaded into a process that started without it.
// Jobs come over stdin and answers go over stdout; every array lies in a block of its exact size. What the sanitizer
// finds ends the process, its report on stderr.
#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <string>
#include <vector>

#include "runtime.h"

using namespace cuda_host;

namespace {

using Function = const char* (*)(const Launch*, const Argument*, std::size_t);

struct Job {
    Launch how;
    std::uint32_t library_bytes, function_bytes, arguments;
};

struct Given {
    std::uint64_t bytes;
    std::uint32_t is_pointer, writable;
};

bool take(void* to, std::size_t bytes) { return std::fread(to, 1, bytes, stdin) == bytes; }

void must_take(void* to, std::size_t bytes) {
    if (!take(to, bytes)) std::exit(3);
}

std::string text(std::size_t bytes) {
    std::string result(bytes, ' ');
    must_take(result.data(), bytes);
    return result;
}

const char* run(const Job& job, const std::vector<Argument>& arguments) {
    const std::string library = text(job.library_bytes), function = text(job.function_bytes);
    void* const loaded = dlopen(library.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!loaded) return dlerror();
    void* const found = dlsym(loaded, function.c_str());
    if (!found) return "the unit has no such function";
    return reinterpret_cast<Function>(found)(&job.how, arguments.data(), arguments.size());
}

void answer(const Job& job) {
    std::vector<Given> given(job.arguments);
    must_take(given.data(), given.size() * sizeof(Given));
    std::vector<void*> blocks(job.arguments);
    std::vector<Argument> arguments(job.arguments);
    for (std::size_t i = 0; i < given.size(); ++i) {
        if (posix_memalign(&blocks[i], 256, given[i].bytes)) std::exit(4);
        must_take(blocks[i], given[i].bytes);
        arguments[i] = {given[i].is_pointer ? &blocks[i] : blocks[i],
                        given[i].is_pointer ? sizeof(void*) : std::size_t(given[i].bytes), int(given[i].is_pointer),
                        int(given[i].writable), std::size_t(given[i].bytes)};
    }
    const char* const trouble = run(job, arguments);
    const std::uint32_t bytes = std::uint32_t(std::strlen(trouble));
    std::fwrite(&bytes, sizeof bytes, 1, stdout);
    std::fwrite(trouble, 1, bytes, stdout);
    for (std::size_t i = 0; i < given.size(); ++i) {
        if (!bytes && given[i].is_pointer) std::fwrite(blocks[i], 1, given[i].bytes, stdout);
        std::free(blocks[i]);
    }
    std::fflush(stdout);
}

}  // namespace

int main() {
    for (Job job; take(&job, sizeof job);) answer(job);
}
