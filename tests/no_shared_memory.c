/* Preloaded into a process: the indexes of SQLite's logs cannot be mapped, as on some network file systems. */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <unistd.h>

static int refused(int file)
{
    char link[64], name[4096];
    ssize_t length;

    if (file < 0)
        return 0;
    snprintf(link, sizeof link, "/proc/self/fd/%d", file);
    length = readlink(link, name, sizeof name - 1);
    return length > 4 && memcmp(name + length - 4, "-shm", 4) == 0;
}

void *mmap(void *at, size_t length, int protection, int flags, int file, off_t place)
{
    static void *(*real)(void *, size_t, int, int, int, off_t);

    if (real == NULL)
        *(void **)&real = dlsym(RTLD_NEXT, "mmap");
    if (refused(file)) {
        errno = EINVAL;
        return MAP_FAILED;
    }
    return real(at, length, protection, flags, file, place);
}

void *mmap64(void *at, size_t length, int protection, int flags, int file, off_t place)
{
    return mmap(at, length, protection, flags, file, place);
}
