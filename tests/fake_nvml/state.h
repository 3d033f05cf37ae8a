/* What the fake NVML plays: a file that a test maps too (FAKE_NVML_STATE). What a test writes there is what
 * every process reads through NVML; what is set through NVML is what the test reads there. The twin of these
 * structures is in tests/fake_nvml_state.py. */
#pragma once
#include <stdint.h>

enum {
    SUCCESS = 0,
    INVALID_ARGUMENT = 2,
    NOT_SUPPORTED = 3,
    NOT_FOUND = 6,
    INSUFFICIENT_SIZE = 7,
    DRIVER_NOT_LOADED = 9,
    GPU_IS_LOST = 15,
    UNKNOWN = 999
};
enum { RING = 256, CLOCKS = 256, SEGMENTS = 1024, PIDS = 16, GPUS = 2 };

/* The calls a test can let fail, each on its own. */
#define CALLS(X) \
    X(energy) X(ring) X(instant) X(average) X(usage) X(clock) X(reasons) X(supported) X(set) X(reset) \
    X(applications) X(set_applications) X(reset_applications) X(processes) X(persistence) X(mig) \
    X(temperature) X(limit) X(set_limit) X(identity) X(capability) X(virtualization) X(restriction) X(load) \
    X(profiles) X(set_profile)

#define AS_ENUM(name) CALL_##name,
enum { CALLS(AS_ENUM) CALL_COUNT };

struct sample {
    uint64_t stamp_us;
    uint64_t milliwatts;
};

/* Power from start_us until the next segment: constant, or a square wave where period_us is set, at
 * milliwatts for busy_us and at idle_milliwatts for the rest of each period. */
struct segment {
    uint64_t start_us, busy_us, period_us;
    uint32_t milliwatts, idle_milliwatts;
};

/* How a reading is made of the true power. A period of 0: it shows the number a test wrote. Else it is
 * renewed at phase_us and every period_us: a mean over window_us, or a first-order lag of lag_us, or the
 * present power; a counter ignores both. From stopped_us on (where set) it is renewed no more. */
struct sensor {
    uint64_t period_us, window_us, lag_us, phase_us, stopped_us;
    uint32_t noise_milliwatts; /* uniform, a function of the update's number */
    uint32_t spare;
};

struct gpu {
    char uuid[96];
    char name[96];
#define AS_RESULT(name) int32_t name;
    CALLS(AS_RESULT) /* results of calls, SUCCESS unless a test writes another */
    uint32_t counts[CALL_COUNT];    /* calls so far */
    uint32_t fail_from[CALL_COUNT]; /* the call with this number and those up to fail_until return fail_with */
    uint32_t fail_until[CALL_COUNT];
    int32_t fail_with[CALL_COUNT];
    uint32_t calls, lost_from; /* all calls so far; from this one on (where set) the GPU is lost */
    uint32_t call_us;          /* how far each call moves the time where a test plays it */
    uint32_t architecture;
    uint32_t clock_mhz; /* of the GPU where nothing else holds it */
    uint32_t memory_mhz[2];
    uint32_t clock_count;
    uint32_t clocks_mhz[CLOCKS];
    uint64_t reason_bits;
    /* power */
    uint64_t millijoules; /* of the counter; with a period, added to what the curve gives */
    uint32_t instant_milliwatts, average_milliwatts, usage_milliwatts;
    int32_t module;             /* result of power fields at module scope */
    uint32_t rest_milliwatts;   /* what the module draws beside the GPU */
    uint32_t ring_count;
    struct sample samples[RING];
    struct sensor counter_sensor, ring_sensor, instant_sensor, average_sensor, usage_sensor;
    uint32_t segment_count, ring_length;
    struct segment segments[SEGMENTS];
    /* clocks as set, and how the GPU follows */
    uint32_t locked_min_mhz, locked_max_mhz;
    uint32_t sets, resets, reset_failures_left;
    uint32_t app_memory_mhz, app_clock_mhz, default_app_memory_mhz, default_app_clock_mhz;
    uint32_t app_sets, app_resets;
    uint32_t disobedient; /* what is set is accepted, and changes nothing */
    uint32_t capped_mhz;  /* the clock gets no higher, where set */
    uint32_t before_mhz;  /* the clock at the last change, from which it moves within settle_us */
    uint64_t settle_us, changed_us;
    /* surroundings */
    uint32_t process_count, pids[PIDS];
    uint32_t persistence_mode, mig_mode, temperature_c, load_percent;
    uint32_t capability_major, capability_minor, virtualization_mode, restricted;
    uint32_t limit_milliwatts, enforced_limit_milliwatts, least_limit_milliwatts, most_limit_milliwatts;
    uint32_t default_limit_milliwatts, limit_sets;
    uint32_t limit_step_milliwatts; /* to which what is set is rounded, where set */
    uint32_t profile_bits, requested_profiles; /* power profiles that there are, and that are requested: a bit for each */
};

struct state {
    struct gpu gpus[GPUS];
    int32_t init;
    uint32_t gpu_count;
    uint64_t time_us;        /* the time a test plays; 0 for the monotonic clock */
    int64_t stamp_offset_us; /* from that time to the stamps of the ring */
    char driver[80], version[80];
    int32_t cuda; /* 13000 is 13.0 */
    uint32_t spare;
};

uint64_t now_us(void);
extern struct state *state;

/* Counts a call and says how it ends; `result` is what a test wrote for it. */
int called(struct gpu *gpu, int call, int result);
#define CALLED(gpu, name) called(gpu, CALL_##name, (gpu)->name)

double millijoules_until(const struct gpu *gpu, double time_us);
uint32_t shown_milliwatts(const struct gpu *gpu, const struct sensor *sensor, uint32_t fixed);
