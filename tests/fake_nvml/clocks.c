/* Clocks of the fake NVML: what can be set, what was, and how the GPU follows. */
#include "state.h"

#include <string.h>

enum { CLOCK_GRAPHICS = 0, CLOCK_SM = 1, CLOCK_MEMORY = 2 };

static uint32_t wanted_mhz(const struct gpu *gpu) {
    if (gpu->disobedient) return gpu->clock_mhz;
    if (gpu->locked_max_mhz) return gpu->locked_max_mhz;
    return gpu->app_clock_mhz == gpu->default_app_clock_mhz ? gpu->clock_mhz : gpu->app_clock_mhz;
}

static uint32_t present_mhz(const struct gpu *gpu) {
    double mhz = wanted_mhz(gpu), elapsed = (double)(now_us() - gpu->changed_us);
    if (gpu->settle_us && elapsed < (double)gpu->settle_us) {
        mhz = gpu->before_mhz + (mhz - gpu->before_mhz) * elapsed / (double)gpu->settle_us;
    }
    if (gpu->capped_mhz && mhz > gpu->capped_mhz) mhz = gpu->capped_mhz;
    return (uint32_t)(mhz + 0.5);
}

/* To be called before what is wanted changes. */
static void changing(struct gpu *gpu) {
    gpu->before_mhz = present_mhz(gpu);
    gpu->changed_us = now_us();
}

int nvmlDeviceGetClockInfo(struct gpu *gpu, int type, unsigned *mhz) {
    int result = CALLED(gpu, clock);
    if (type == CLOCK_MEMORY) *mhz = gpu->memory_mhz[1];
    else *mhz = present_mhz(gpu);
    return type > CLOCK_MEMORY ? INVALID_ARGUMENT : result;
}

int nvmlDeviceGetMaxClockInfo(struct gpu *gpu, int type, unsigned *mhz) {
    *mhz = type == CLOCK_MEMORY ? gpu->memory_mhz[1] : gpu->clocks_mhz[0];
    return CALLED(gpu, clock);
}

int nvmlDeviceGetCurrentClocksEventReasons(struct gpu *gpu, unsigned long long *bits) {
    *bits = gpu->reason_bits;
    return CALLED(gpu, reasons);
}

static int list(struct gpu *gpu, const uint32_t *from, unsigned length, unsigned *count, unsigned *to) {
    int result = CALLED(gpu, supported);
    if (result) return result;
    int fits = *count >= length;
    *count = length;
    if (!fits || !to) return INSUFFICIENT_SIZE;
    memcpy(to, from, length * sizeof *to);
    return SUCCESS;
}

int nvmlDeviceGetSupportedMemoryClocks(struct gpu *gpu, unsigned *count, unsigned *mhz) {
    return list(gpu, gpu->memory_mhz, 2, count, mhz);
}

int nvmlDeviceGetSupportedGraphicsClocks(struct gpu *gpu, unsigned memory_mhz, unsigned *count, unsigned *mhz) {
    /* the lower memory clock has but the last graphics clock */
    unsigned length = memory_mhz == gpu->memory_mhz[1] ? gpu->clock_count : 1;
    return list(gpu, gpu->clocks_mhz + (gpu->clock_count - length), length, count, mhz);
}

int nvmlDeviceSetGpuLockedClocks(struct gpu *gpu, unsigned low_mhz, unsigned high_mhz) {
    int result = CALLED(gpu, set);
    gpu->sets++;
    if (result) return result;
    changing(gpu);
    gpu->locked_min_mhz = low_mhz;
    gpu->locked_max_mhz = high_mhz;
    return SUCCESS;
}

int nvmlDeviceResetGpuLockedClocks(struct gpu *gpu) {
    int result = CALLED(gpu, reset);
    gpu->resets++;
    if (gpu->reset_failures_left) {
        gpu->reset_failures_left--;
        return UNKNOWN;
    }
    if (result) return result;
    changing(gpu);
    gpu->locked_min_mhz = gpu->locked_max_mhz = 0;
    return SUCCESS;
}

int nvmlDeviceGetApplicationsClock(struct gpu *gpu, int type, unsigned *mhz) {
    *mhz = type == CLOCK_MEMORY ? gpu->app_memory_mhz : gpu->app_clock_mhz;
    return CALLED(gpu, applications);
}

int nvmlDeviceGetDefaultApplicationsClock(struct gpu *gpu, int type, unsigned *mhz) {
    *mhz = type == CLOCK_MEMORY ? gpu->default_app_memory_mhz : gpu->default_app_clock_mhz;
    return CALLED(gpu, applications);
}

static int known(const uint32_t *list, unsigned count, uint32_t mhz) {
    for (unsigned i = 0; i < count; i++) {
        if (list[i] == mhz) return 1;
    }
    return 0;
}

int nvmlDeviceSetApplicationsClocks(struct gpu *gpu, unsigned memory_mhz, unsigned mhz) {
    int result = CALLED(gpu, set_applications);
    gpu->app_sets++;
    if (result) return result;
    if (!known(gpu->memory_mhz, 2, memory_mhz) || !known(gpu->clocks_mhz, gpu->clock_count, mhz)) return INVALID_ARGUMENT;
    changing(gpu);
    gpu->app_memory_mhz = memory_mhz;
    gpu->app_clock_mhz = mhz;
    return SUCCESS;
}

int nvmlDeviceResetApplicationsClocks(struct gpu *gpu) {
    int result = CALLED(gpu, reset_applications);
    gpu->app_resets++;
    if (result) return result;
    changing(gpu);
    gpu->app_memory_mhz = gpu->default_app_memory_mhz;
    gpu->app_clock_mhz = gpu->default_app_clock_mhz;
    return SUCCESS;
}
