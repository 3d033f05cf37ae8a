/* Preloaded into a process: while the file named by FAULTY_THREADS begins with a byte other than zero, neither
 * a thread nor a process begins, as where a user or a control group has no more of them. Nothing is limited
 * in this machine, and it holds for root, too.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <pthread.h>
#include <spawn.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <unistd.h>

static const volatile char free_to_begin;
static const volatile char *refused = &free_to_begin;

static int (*real_thread)(pthread_t *, const pthread_attr_t *, void *(*)(void *), void *);
static pid_t (*real_fork)(void);
static int (*real_spawn)(
    pid_t *, const char *, const posix_spawn_file_actions_t *, const posix_spawnattr_t *, char *const[],
    char *const[]
);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTY_THREADS");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    *(void **)&real_thread = dlsym(RTLD_NEXT, "pthread_create");
    *(void **)&real_fork = dlsym(RTLD_NEXT, "fork");
    *(void **)&real_spawn = dlsym(RTLD_NEXT, "posix_spawn");
    if (file < 0) return;
    void *seen = mmap(NULL, 1, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (seen != MAP_FAILED) refused = seen;
}

int pthread_create(pthread_t *thread, const pthread_attr_t *how, void *(*work)(void *), void *with) {
    return *refused ? EAGAIN : real_thread(thread, how, work, with);
}

pid_t fork(void) {
    if (!*refused) return real_fork();
    errno = EAGAIN;
    return -1;
}

/* Whoever returns from here shares no stack with its parent: a plain child does as well. */
pid_t vfork(void) {
    return fork();
}

int posix_spawn(
    pid_t *pid, const char *path, const posix_spawn_file_actions_t *actions, const posix_spawnattr_t *how,
    char *const arguments[], char *const environment[]
) {
    return *refused ? EAGAIN : real_spawn(pid, path, actions, how, arguments, environment);
}
