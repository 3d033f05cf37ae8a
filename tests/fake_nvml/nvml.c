/* The part of NVML this project calls, played from a state file: the library, its GPUs and what they are.
 * Power is in power.c, clocks are in clocks.c. */
#include <fcntl.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

#include "state.h"

struct state *state;
static int users;

size_t fakeStateSize(void) { return sizeof(struct state); }

/* How often NVML is initialised and not shut down in this process. */
int fakeUsers(void) { return users; }

/* The next test has another file; what a test left open keeps the old one. */
void fakeForget(void) {
    state = NULL;
    users = 0;
}

uint64_t now_us(void) {
    struct timespec now;
    if (state->time_us) return state->time_us;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000u + (uint64_t)now.tv_nsec / 1000u;
}

int called(struct gpu *gpu, int call, int result) {
    uint32_t number = ++gpu->counts[call];
    if (state->time_us) state->time_us += gpu->call_us;
    if (++gpu->calls >= gpu->lost_from && gpu->lost_from) return GPU_IS_LOST;
    if (gpu->fail_from[call] && number >= gpu->fail_from[call] && number <= gpu->fail_until[call]) return gpu->fail_with[call];
    return result;
}

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

int nvmlShutdown(void) {
    if (users && --users == 0) {
        munmap(state, sizeof *state);
        state = NULL;
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

static int text(const char *from, char *to, unsigned size) {
    if (strlen(from) >= size) return INSUFFICIENT_SIZE;
    strcpy(to, from);
    return SUCCESS;
}

int nvmlSystemGetDriverVersion(char *to, unsigned size) { return text(state->driver, to, size); }

int nvmlSystemGetNVMLVersion(char *to, unsigned size) { return text(state->version, to, size); }

int nvmlSystemGetCudaDriverVersion(int *version) {
    *version = state->cuda;
    return SUCCESS;
}

int nvmlDeviceGetCount_v2(unsigned *count) {
    *count = state->gpu_count;
    return SUCCESS;
}

int nvmlDeviceGetHandleByUUID(const char *uuid, struct gpu **gpu) {
    for (unsigned i = 0; i < state->gpu_count; i++) {
        *gpu = &state->gpus[i];
        if (!strcmp(uuid, (*gpu)->uuid)) return CALLED(*gpu, identity);
        /* an instance, MIG-GPU-.../1/0, has the handle of its GPU here */
        if (!strncmp(uuid, "MIG-", 4) && !strncmp(uuid + 4, (*gpu)->uuid, strlen((*gpu)->uuid)))
            return CALLED(*gpu, identity);
    }
    return NOT_FOUND;
}

int nvmlDeviceGetDeviceHandleFromMigDeviceHandle(struct gpu *instance, struct gpu **gpu) {
    *gpu = instance;
    return SUCCESS;
}

int nvmlDeviceGetHandleByIndex_v2(unsigned index, struct gpu **gpu) {
    if (index >= state->gpu_count) return INVALID_ARGUMENT;
    *gpu = &state->gpus[index];
    return CALLED(*gpu, identity);
}

int nvmlDeviceGetIndex(struct gpu *gpu, unsigned *index) {
    *index = (unsigned)(gpu - state->gpus);
    return SUCCESS;
}

int nvmlDeviceGetUUID(struct gpu *gpu, char *to, unsigned size) { return text(gpu->uuid, to, size); }

int nvmlDeviceGetName(struct gpu *gpu, char *to, unsigned size) { return text(gpu->name, to, size); }

int nvmlDeviceGetArchitecture(struct gpu *gpu, uint32_t *architecture) {
    *architecture = gpu->architecture;
    return SUCCESS;
}

int nvmlDeviceGetCudaComputeCapability(struct gpu *gpu, int *major, int *minor) {
    *major = (int)gpu->capability_major;
    *minor = (int)gpu->capability_minor;
    return CALLED(gpu, capability);
}

int nvmlDeviceGetVirtualizationMode(struct gpu *gpu, uint32_t *mode) {
    *mode = gpu->virtualization_mode;
    return CALLED(gpu, virtualization);
}

int nvmlDeviceGetAPIRestriction(struct gpu *gpu, int what, uint32_t *restricted) {
    *restricted = gpu->restricted;
    return what ? INVALID_ARGUMENT : CALLED(gpu, restriction);
}

int nvmlDeviceGetPersistenceMode(struct gpu *gpu, uint32_t *mode) {
    *mode = gpu->persistence_mode;
    return CALLED(gpu, persistence);
}

int nvmlDeviceGetMigMode(struct gpu *gpu, unsigned *present, unsigned *pending) {
    *present = *pending = gpu->mig_mode;
    return CALLED(gpu, mig);
}

int nvmlDeviceGetTemperature(struct gpu *gpu, unsigned sensor, unsigned *celsius) {
    *celsius = gpu->temperature_c;
    return sensor ? INVALID_ARGUMENT : CALLED(gpu, temperature);
}

struct load {
    unsigned gpu, memory;
};

int nvmlDeviceGetUtilizationRates(struct gpu *gpu, struct load *load) {
    *load = (struct load){gpu->load_percent, 0};
    return CALLED(gpu, load);
}

struct temperature {
    unsigned version, sensor;
    int celsius;
};

int nvmlDeviceGetTemperatureV(struct gpu *gpu, struct temperature *temperature) {
    temperature->celsius = (int)gpu->temperature_c;
    return temperature->sensor ? INVALID_ARGUMENT : CALLED(gpu, temperature);
}

struct process {
    unsigned pid;
    unsigned long long memory;
    unsigned gpu_instance, compute_instance;
};

int nvmlDeviceGetComputeRunningProcesses_v3(struct gpu *gpu, unsigned *count, struct process *processes) {
    int result = CALLED(gpu, processes);
    if (result) return result;
    unsigned found = gpu->process_count, room = *count;
    *count = found;
    if (found > room) return INSUFFICIENT_SIZE;
    for (unsigned i = 0; i < found; i++) {
        processes[i] = (struct process){gpu->pids[i], 1u << 20, 0xffffffffu, 0xffffffffu};
    }
    return SUCCESS;
}
