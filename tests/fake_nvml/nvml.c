/* The part of NVML this project calls, played from a state file that a test maps too (FAKE_NVML_STATE).
 * What a test writes there is what every process reads through NVML; what is set through NVML is what the
 * test reads there. Layout: struct state below and its twin in tests/fake_nvml_state.py. */
#include <fcntl.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

enum { SUCCESS = 0, INVALID_ARGUMENT = 2, NOT_SUPPORTED = 3, NOT_FOUND = 6, INSUFFICIENT_SIZE = 7, DRIVER_NOT_LOADED = 9 };
enum { UNSIGNED_INT = 1, RING = 256, CLOCKS = 256 };

struct sample {
    uint64_t stamp_us;
    uint64_t milliwatts;
};

struct state {
    char uuid[96];
    char name[96];
    /* results of calls, SUCCESS unless a test writes another */
    int32_t init, energy, ring, instant, usage, clock, reasons, supported, set, reset;
    uint32_t architecture;
    uint32_t clock_mhz;
    uint32_t memory_mhz[2];
    uint32_t clock_count;
    uint32_t clocks_mhz[CLOCKS];
    uint64_t reason_bits;
    /* readings: the energy counter ticks with time where a tick is set, else it shows what a test wrote */
    uint64_t millijoules;
    uint64_t tick_us;
    uint64_t watts;
    uint32_t instant_milliwatts;
    uint32_t usage_milliwatts;
    uint32_t ring_count;
    struct sample samples[RING];
    /* what was done */
    uint32_t locked_min_mhz, locked_max_mhz;
    uint32_t sets, resets, reset_failures_left;
};

struct value {
    union {
        double d;
        uint32_t u;
        uint64_t ull;
    };
};

struct nvml_sample {
    unsigned long long stamp;
    struct value value;
};

struct nvml_field {
    uint32_t id, scope;
    int64_t stamp, latency;
    uint32_t type, result;
    struct value value;
};

static struct state *state;
static int users;

static int opened(void) {
    const char *path = getenv("FAKE_NVML_STATE");
    if (state) return SUCCESS;
    int file = path ? open(path, O_RDWR | O_CLOEXEC) : -1;
    if (file < 0) return DRIVER_NOT_LOADED;
    void *map = mmap(NULL, sizeof *state, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
    close(file);
    if (map == MAP_FAILED) return DRIVER_NOT_LOADED;
    state = map;
    return SUCCESS;
}

size_t fakeStateSize(void) { return sizeof(struct state); }

int nvmlShutdown(void) {
    if (users && --users == 0) {
        munmap(state, sizeof *state);
        state = NULL; /* the next test has another file */
    }
    return SUCCESS;
}

int nvmlInitWithFlags(unsigned flags) {
    (void)flags;
    int result = opened();
    if (result) return result;
    users++;
    result = state->init;
    if (result) nvmlShutdown();
    return result;
}

const char *nvmlErrorString(int result) { return result == 28 ? "GPU not found" : "an error of NVML"; }

int nvmlDeviceGetHandleByUUID(const char *uuid, void **device) {
    *device = state;
    return strcmp(uuid, state->uuid) ? NOT_FOUND : SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, void **device) {
    *device = state;
    return index ? INVALID_ARGUMENT : SUCCESS;
}

int nvmlDeviceGetUUID(void *device, char *text, unsigned size) {
    (void)device;
    strncpy(text, state->uuid, size);
    return SUCCESS;
}

int nvmlDeviceGetName(void *device, char *text, unsigned size) {
    (void)device;
    strncpy(text, state->name, size);
    return SUCCESS;
}

int nvmlDeviceGetArchitecture(void *device, uint32_t *architecture) {
    (void)device;
    *architecture = state->architecture;
    return SUCCESS;
}

int nvmlDeviceGetTotalEnergyConsumption(void *device, unsigned long long *millijoules) {
    (void)device;
    *millijoules = state->millijoules;
    if (state->tick_us) {
        struct timespec now;
        clock_gettime(CLOCK_MONOTONIC, &now);
        uint64_t us = (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
        *millijoules += us / state->tick_us * state->tick_us * state->watts / 1000u;
    }
    return state->energy;
}

int nvmlDeviceGetSamples(void *device, int kind, unsigned long long since, int *type, unsigned *count, struct nvml_sample *samples) {
    (void)device;
    unsigned found = 0;
    if (state->ring) return state->ring;
    if (kind != 0) return INVALID_ARGUMENT;
    *type = UNSIGNED_INT;
    if (!samples) {
        *count = RING;
        return SUCCESS;
    }
    for (unsigned i = 0; i < state->ring_count && i < RING; i++) {
        if (state->samples[i].stamp_us <= since) continue;
        samples[found].stamp = state->samples[i].stamp_us;
        samples[found++].value.ull = state->samples[i].milliwatts;
    }
    *count = found;
    return found ? SUCCESS : NOT_FOUND;
}

int nvmlDeviceGetFieldValues(void *device, int count, struct nvml_field *fields) {
    (void)device;
    for (int i = 0; i < count; i++) {
        fields[i].result = fields[i].id == 186 ? (uint32_t)state->instant : NOT_SUPPORTED;
        fields[i].type = UNSIGNED_INT;
        fields[i].value.ull = state->instant_milliwatts;
    }
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(void *device, unsigned *milliwatts) {
    (void)device;
    *milliwatts = state->usage_milliwatts;
    return state->usage;
}

int nvmlDeviceGetClockInfo(void *device, int type, unsigned *mhz) {
    (void)device;
    *mhz = state->locked_max_mhz ? state->locked_max_mhz : state->clock_mhz;
    return type == 1 ? state->clock : INVALID_ARGUMENT;
}

int nvmlDeviceGetCurrentClocksEventReasons(void *device, unsigned long long *bits) {
    (void)device;
    *bits = state->reason_bits;
    return state->reasons;
}

static int list(const uint32_t *from, unsigned length, unsigned *count, unsigned *to) {
    if (state->supported) return state->supported;
    int fits = *count >= length;
    *count = length;
    if (!fits || !to) return INSUFFICIENT_SIZE;
    memcpy(to, from, length * sizeof *to);
    return SUCCESS;
}

int nvmlDeviceGetSupportedMemoryClocks(void *device, unsigned *count, unsigned *mhz) {
    (void)device;
    return list(state->memory_mhz, 2, count, mhz);
}

int nvmlDeviceGetSupportedGraphicsClocks(void *device, unsigned memory_mhz, unsigned *count, unsigned *mhz) {
    (void)device;
    /* the lower memory clock has but the last graphics clock */
    unsigned length = memory_mhz == state->memory_mhz[1] ? state->clock_count : 1;
    return list(state->clocks_mhz + (state->clock_count - length), length, count, mhz);
}

int nvmlDeviceSetGpuLockedClocks(void *device, unsigned low_mhz, unsigned high_mhz) {
    (void)device;
    state->sets++;
    if (state->set) return state->set;
    state->locked_min_mhz = low_mhz;
    state->locked_max_mhz = high_mhz;
    return SUCCESS;
}

int nvmlDeviceResetGpuLockedClocks(void *device) {
    (void)device;
    state->resets++;
    if (state->reset_failures_left) {
        state->reset_failures_left--;
        return 999;
    }
    if (state->reset) return state->reset;
    state->locked_min_mhz = state->locked_max_mhz = 0;
    return SUCCESS;
}
