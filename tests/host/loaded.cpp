// Where this library lies in memory.
#include <link.h>

#include "checks.h"

namespace cuda_host {

namespace {

thread_local char in_thread_storage;
char in_image;

struct Search {
    bool thread_storage;
    Span found;
};

int look(dl_phdr_info* info, std::size_t, void* data) {
    Search& search = *static_cast<Search*>(data);
    const bool storage = search.thread_storage;
    const char* const mark = storage ? &in_thread_storage : &in_image;
    for (int i = 0; i < info->dlpi_phnum; ++i) {
        const auto& header = info->dlpi_phdr[i];
        if (header.p_type != (storage ? PT_TLS : PT_LOAD)) continue;
        const char* const begin = storage ? static_cast<const char*>(info->dlpi_tls_data)
                                          : reinterpret_cast<const char*>(info->dlpi_addr);
        const std::size_t bytes = header.p_memsz + (storage ? 0 : header.p_vaddr);
        if (begin && mark >= begin && mark < begin + bytes) search.found = {begin, begin + bytes};
    }
    return search.found.begin != nullptr;
}

}  // namespace

// Static shared variables are thread-local ones of this library, so its thread storage is their memory.
Span loaded(bool thread_storage) {
    *const_cast<volatile char*>(&in_thread_storage) = 0;  // makes sure that it exists
    *const_cast<volatile char*>(&in_image) = 0;
    Search search{thread_storage, {}};
    dl_iterate_phdr(look, &search);
    return search.found;
}

unsigned long offset_of(const void* place) {
    return (unsigned long)(static_cast<const char*>(place) - 1 - loaded(false).begin);
}

}  // namespace cuda_host
