/* Power over time as a test scripted it, and the calls that show it as the sensors of a GPU would. */
#include "state.h"

#include <math.h>

enum { UNSIGNED_INT = 1, FIELD_AVERAGE = 185, FIELD_INSTANT = 186, SCOPE_GPU = 0, SCOPE_MODULE = 1 };
enum { STEPS = 8, SETTLED = 12 }; /* a lag is followed in so many steps a period, over so many time constants */

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

/* mW us of one segment, `length` after its start */
static double of_segment(const struct segment *segment, double length) {
    if (!segment->period_us) return length * segment->milliwatts;
    double periods = floor(length / (double)segment->period_us);
    double rest = length - periods * (double)segment->period_us;
    double busy = (double)segment->busy_us, idle = (double)segment->period_us - busy;
    double whole = periods * (busy * segment->milliwatts + idle * segment->idle_milliwatts);
    if (rest <= busy) return whole + rest * segment->milliwatts;
    return whole + busy * segment->milliwatts + (rest - busy) * segment->idle_milliwatts;
}

/* Energy since the curve began; before that the GPU drew nothing. */
double millijoules_until(const struct gpu *gpu, double time_us) {
    double sum = 0.0;
    for (unsigned i = 0; i < gpu->segment_count; i++) {
        const struct segment *segment = &gpu->segments[i];
        double start = (double)segment->start_us;
        double end = i + 1 < gpu->segment_count ? (double)segment[1].start_us : time_us;
        if (time_us <= start) break;
        sum += of_segment(segment, fmin(end, time_us) - start);
    }
    return sum * 1e-6;
}

static double mean_milliwatts(const struct gpu *gpu, double from_us, double to_us) {
    return (millijoules_until(gpu, to_us) - millijoules_until(gpu, from_us)) / (to_us - from_us) * 1e6;
}

/* Number of the update that shows at a time. */
static uint64_t update(const struct sensor *sensor, uint64_t time_us) {
    if (sensor->stopped_us && time_us > sensor->stopped_us) time_us = sensor->stopped_us;
    return time_us < sensor->phase_us ? 0 : (time_us - sensor->phase_us) / sensor->period_us;
}

static double noise(const struct sensor *sensor, uint64_t number) {
    uint64_t bits = (number + 1) * 0x9e3779b97f4a7c15u; /* splitmix64 */
    bits = (bits ^ (bits >> 30)) * 0xbf58476d1ce4e5b9u;
    bits = (bits ^ (bits >> 27)) * 0x94d049bb133111ebu;
    bits ^= bits >> 31;
    return sensor->noise_milliwatts * (2.0 * (double)bits / 18446744073709551615.0 - 1.0);
}

static uint32_t rounded(double milliwatts) { return milliwatts < 0.5 ? 0 : (uint32_t)(milliwatts + 0.5); }

/* Updates number first to last of a lag: what it shows follows the power over steps of its period. */
static void lagged(const struct gpu *gpu, const struct sensor *sensor, uint64_t first, uint64_t last, double *shown) {
    double period = (double)sensor->period_us, lag = (double)sensor->lag_us, step = period / STEPS;
    double at = (double)sensor->phase_us + (double)first * period, kept = exp(-step / lag);
    double time = at - step * ceil(SETTLED * lag / step), value = mean_milliwatts(gpu, time - step, time);
    for (uint64_t number = first; number <= last; number++, at += period) {
        for (; time < at - step / 2; time += step) {
            value = kept * value + (1.0 - kept) * mean_milliwatts(gpu, time, time + step);
        }
        shown[number - first] = value;
    }
}

/* What updates number first to last show. */
static void updates(const struct gpu *gpu, const struct sensor *sensor, uint64_t first, uint64_t last, double *shown) {
    double window = sensor->window_us ? (double)sensor->window_us : 1.0;
    if (sensor->lag_us) lagged(gpu, sensor, first, last, shown);
    for (uint64_t number = first; number <= last; number++) {
        double at = (double)sensor->phase_us + (double)number * (double)sensor->period_us;
        if (!sensor->lag_us) shown[number - first] = mean_milliwatts(gpu, at - window, at);
        shown[number - first] += noise(sensor, number);
    }
}

uint32_t shown_milliwatts(const struct gpu *gpu, const struct sensor *sensor, uint32_t fixed) {
    if (!sensor->period_us) return fixed;
    uint64_t number = update(sensor, now_us());
    double shown;
    updates(gpu, sensor, number, number, &shown);
    return rounded(shown);
}

int nvmlDeviceGetTotalEnergyConsumption(struct gpu *gpu, unsigned long long *millijoules) {
    const struct sensor *sensor = &gpu->counter_sensor;
    int result = CALLED(gpu, energy);
    *millijoules = gpu->millijoules;
    if (sensor->period_us) {
        uint64_t number = update(sensor, now_us());
        *millijoules += (uint64_t)millijoules_until(gpu, (double)(sensor->phase_us + number * sensor->period_us));
    }
    return result;
}

/* The samples of the ring, oldest first; returns how many. */
static unsigned ring(const struct gpu *gpu, struct sample *to) {
    const struct sensor *sensor = &gpu->ring_sensor;
    unsigned count = 0;
    if (!sensor->period_us) {
        for (; count < gpu->ring_count && count < RING; count++) to[count] = gpu->samples[count];
        return count;
    }
    double shown[RING];
    uint64_t last = update(sensor, now_us()), length = gpu->ring_length;
    uint64_t first = last >= length ? last - length + 1 : 0;
    updates(gpu, sensor, first, last, shown);
    for (uint64_t number = first; number <= last; number++, count++) {
        uint64_t at = sensor->phase_us + number * sensor->period_us;
        to[count].stamp_us = (uint64_t)((int64_t)at + state->stamp_offset_us);
        to[count].milliwatts = rounded(shown[number - first]);
    }
    return count;
}

int nvmlDeviceGetSamples(struct gpu *gpu, int kind, unsigned long long since, int *type, unsigned *count, struct nvml_sample *samples) {
    struct sample held[RING];
    int result = CALLED(gpu, ring);
    if (result) return result;
    if (kind != 0) return INVALID_ARGUMENT;
    *type = UNSIGNED_INT;
    if (!samples) {
        *count = RING;
        return SUCCESS;
    }
    unsigned found = 0, length = ring(gpu, held);
    for (unsigned i = 0; i < length; i++) {
        if (held[i].stamp_us <= since) continue;
        samples[found].stamp = held[i].stamp_us;
        samples[found++].value.ull = held[i].milliwatts;
    }
    *count = found;
    return found ? SUCCESS : NOT_FOUND;
}

static void field(struct gpu *gpu, struct nvml_field *value) {
    int instant = value->id == FIELD_INSTANT;
    value->type = UNSIGNED_INT;
    if (!instant && value->id != FIELD_AVERAGE) {
        value->result = NOT_SUPPORTED;
        return;
    }
    int result = instant ? CALLED(gpu, instant) : CALLED(gpu, average);
    uint32_t milliwatts = instant ? shown_milliwatts(gpu, &gpu->instant_sensor, gpu->instant_milliwatts)
                                  : shown_milliwatts(gpu, &gpu->average_sensor, gpu->average_milliwatts);
    if (value->scope == SCOPE_MODULE) result = result == GPU_IS_LOST ? result : gpu->module;
    value->result = (uint32_t)(value->scope > SCOPE_MODULE ? NOT_SUPPORTED : result);
    value->value.ull = milliwatts + (value->scope == SCOPE_MODULE ? gpu->rest_milliwatts : 0);
}

int nvmlDeviceGetFieldValues(struct gpu *gpu, int count, struct nvml_field *fields) {
    for (int i = 0; i < count; i++) field(gpu, &fields[i]);
    return SUCCESS;
}

int nvmlDeviceGetPowerUsage(struct gpu *gpu, unsigned *milliwatts) {
    int result = CALLED(gpu, usage);
    *milliwatts = shown_milliwatts(gpu, &gpu->usage_sensor, gpu->usage_milliwatts);
    return result;
}

int nvmlDeviceGetPowerManagementLimit(struct gpu *gpu, unsigned *milliwatts) {
    *milliwatts = gpu->limit_milliwatts;
    return CALLED(gpu, limit);
}

int nvmlDeviceGetEnforcedPowerLimit(struct gpu *gpu, unsigned *milliwatts) {
    *milliwatts = gpu->enforced_limit_milliwatts;
    return CALLED(gpu, limit);
}

int nvmlDeviceGetPowerManagementDefaultLimit(struct gpu *gpu, unsigned *milliwatts) {
    *milliwatts = gpu->default_limit_milliwatts;
    return CALLED(gpu, limit);
}

int nvmlDeviceSetPowerManagementLimit(struct gpu *gpu, unsigned milliwatts) {
    int result = CALLED(gpu, set_limit);
    gpu->limit_sets++;
    if (result) return result;
    if (milliwatts < gpu->least_limit_milliwatts || milliwatts > gpu->most_limit_milliwatts) return INVALID_ARGUMENT;
    if (gpu->limit_step_milliwatts) milliwatts -= milliwatts % gpu->limit_step_milliwatts;
    gpu->limit_milliwatts = gpu->enforced_limit_milliwatts = milliwatts;
    return SUCCESS;
}

int nvmlDeviceGetPowerManagementLimitConstraints(struct gpu *gpu, unsigned *least, unsigned *most) {
    *least = gpu->least_limit_milliwatts;
    *most = gpu->most_limit_milliwatts;
    return CALLED(gpu, limit);
}

/* Power profiles: the first 32 of the 255 that there may be. */
struct mask255 {
    uint32_t word[8];
};

struct profile_info {
    uint32_t version, id, priority;
    struct mask255 conflicting;
};

struct profiles_info {
    uint32_t version;
    struct mask255 there;
    struct profile_info each[255];
};

struct current_profiles {
    uint32_t version;
    struct mask255 there, requested, enforced;
};

struct requested_profiles {
    uint32_t version;
    struct mask255 mask;
};

int nvmlDeviceWorkloadPowerProfileGetProfilesInfo(struct gpu *gpu, struct profiles_info *info) {
    int result = CALLED(gpu, profiles);
    if (!result && !gpu->profile_bits) result = NOT_SUPPORTED;
    info->there.word[0] = gpu->profile_bits;
    return result;
}

int nvmlDeviceWorkloadPowerProfileGetCurrentProfiles(struct gpu *gpu, struct current_profiles *current) {
    current->there.word[0] = gpu->profile_bits;
    current->requested.word[0] = current->enforced.word[0] = gpu->requested_profiles;
    return CALLED(gpu, profiles);
}

int nvmlDeviceWorkloadPowerProfileSetRequestedProfiles(struct gpu *gpu, const struct requested_profiles *request) {
    int result = CALLED(gpu, set_profile);
    if (result) return result;
    if (request->mask.word[0] & ~gpu->profile_bits) return INVALID_ARGUMENT;
    if (!gpu->disobedient) gpu->requested_profiles |= request->mask.word[0];
    return SUCCESS;
}

int nvmlDeviceWorkloadPowerProfileClearRequestedProfiles(struct gpu *gpu, const struct requested_profiles *request) {
    int result = CALLED(gpu, set_profile);
    if (!result && !gpu->disobedient) gpu->requested_profiles &= ~request->mask.word[0];
    return result;
}
