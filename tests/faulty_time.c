/* Preloaded into a process: its clocks are those of the machine plus what the file named by FAULTY_TIME says.
 *
 * The file holds two signed 64-bit numbers of nanoseconds: for the system time (CLOCK_REALTIME) and for the
 * clocks that only rise (CLOCK_MONOTONIC, CLOCK_BOOTTIME). They may change at any instant. Waits until a
 * point in time are waited for on the machine's own clock, so that a wait of a second takes a second.
 */
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <pthread.h>
#include <semaphore.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

enum { SYSTEM, RISING, KINDS };

#define BILLION 1000000000LL

static const volatile int64_t none[KINDS];
static const volatile int64_t *shift_ns = none;

static int (*real_gettime)(clockid_t, struct timespec *);
static int (*real_sleep)(clockid_t, int, const struct timespec *, struct timespec *);
static int (*real_sem)(sem_t *, clockid_t, const struct timespec *);
static int (*real_sem_system)(sem_t *, const struct timespec *);
static int (*real_cond)(pthread_cond_t *, pthread_mutex_t *, const struct timespec *);
static int (*real_cond_clock)(pthread_cond_t *, pthread_mutex_t *, clockid_t, const struct timespec *);

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("FAULTY_TIME");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;

    *(void **)&real_gettime = dlsym(RTLD_NEXT, "clock_gettime");
    *(void **)&real_sleep = dlsym(RTLD_NEXT, "clock_nanosleep");
    *(void **)&real_sem = dlsym(RTLD_NEXT, "sem_clockwait");
    *(void **)&real_sem_system = dlsym(RTLD_NEXT, "sem_timedwait");
    *(void **)&real_cond = dlsym(RTLD_NEXT, "pthread_cond_timedwait");
    *(void **)&real_cond_clock = dlsym(RTLD_NEXT, "pthread_cond_clockwait");
    if (file < 0) return;
    void *seen = mmap(NULL, sizeof none, PROT_READ, MAP_SHARED, file, 0);
    close(file);
    if (seen != MAP_FAILED) shift_ns = seen;
}

static int64_t shift_of(clockid_t clock) {
    switch (clock) {
    case CLOCK_REALTIME:
    case CLOCK_REALTIME_COARSE:
    case CLOCK_TAI:
        return shift_ns[SYSTEM];
    case CLOCK_MONOTONIC:
    case CLOCK_MONOTONIC_RAW:
    case CLOCK_MONOTONIC_COARSE:
    case CLOCK_BOOTTIME:
        return shift_ns[RISING];
    default:
        return 0; /* CPU time stays what it is */
    }
}

static struct timespec shifted(struct timespec from, int64_t by_ns) {
    int64_t ns = from.tv_sec * BILLION + from.tv_nsec + by_ns;
    if (ns < 0) ns = 0;
    return (struct timespec){ns / BILLION, ns % BILLION};
}

int clock_gettime(clockid_t clock, struct timespec *now) {
    if (!real_gettime) begin(); /* somebody's constructor came first */
    int result = real_gettime(clock, now);
    if (result == 0) *now = shifted(*now, shift_of(clock));
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec exact;
    (void)zone;
    int result = clock_gettime(CLOCK_REALTIME, &exact);
    *now = (struct timeval){exact.tv_sec, exact.tv_nsec / 1000};
    return result;
}

time_t time(time_t *to) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (to) *to = now.tv_sec;
    return now.tv_sec;
}

int clock_nanosleep(clockid_t clock, int flags, const struct timespec *wait, struct timespec *left) {
    struct timespec own = flags & TIMER_ABSTIME ? shifted(*wait, -shift_of(clock)) : *wait;
    return real_sleep(clock, flags, &own, left);
}

int sem_clockwait(sem_t *semaphore, clockid_t clock, const struct timespec *until) {
    struct timespec own = shifted(*until, -shift_of(clock));
    return real_sem(semaphore, clock, &own);
}

int sem_timedwait(sem_t *semaphore, const struct timespec *until) {
    struct timespec own = shifted(*until, -shift_of(CLOCK_REALTIME));
    return real_sem_system(semaphore, &own);
}

/* Python makes its condition variables wait on the rising clock. */
int pthread_cond_timedwait(pthread_cond_t *condition, pthread_mutex_t *mutex, const struct timespec *until) {
    struct timespec own = shifted(*until, -shift_of(CLOCK_MONOTONIC));
    return real_cond(condition, mutex, &own);
}

int pthread_cond_clockwait(
    pthread_cond_t *condition, pthread_mutex_t *mutex, clockid_t clock, const struct timespec *until
) {
    struct timespec own = shifted(*until, -shift_of(clock));
    return real_cond_clock(condition, mutex, clock, &own);
}
