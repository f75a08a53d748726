/* By the health check's declarations of NVML. */
#include "src/train/listeners/gpu_usage.h"

#include <math.h>

enum err gpu_usage_open(const char *file, const char *bus,
                        struct gpu_usage *out)
{
    struct gpu_reading first;
    *out = (struct gpu_usage){ .last_j = NAN };
    TRY(health_nvml_open(file, &out->library));
    TRY(health_nvml_find(&out->library, bus, &out->index));
    return gpu_usage_read(out, &first);
}

void gpu_usage_close(struct gpu_usage *usage)
{
    health_nvml_close(&usage->library);
}

static double known(double value, double unit)
{
    return value < 0.0 ? NAN : value * unit;
}

static double has(int64_t throttle, int64_t reasons)
{
    return throttle < 0 ? NAN : (throttle & reasons) != 0;
}

enum err gpu_usage_read(struct gpu_usage *usage, struct gpu_reading *out)
{
    struct health_nvml_state state;
    bool hidden = false;
    TRY(health_nvml_load(&usage->library, usage->index, &state, &hidden));
    if (hidden)
        return err_set(ERR_IO, "NVML: the GPU is not ours any more");
    double joules = known((double)state.millijoules, 1e-3);
    *out = (struct gpu_reading){
        .utilization = known(state.utilization, 0.01),
        .memory = known((double)state.used_bytes, 1.0),
        .celsius = known(state.celsius, 1.0),
        .watts = known(state.milliwatts, 1e-3),
        .mhz = known(state.sm_mhz, 1.0),
        .throttled =
            has(state.throttle, HEALTH_NVML_HARDWARE | HEALTH_NVML_SW_THERMAL),
        .capped = has(state.throttle, HEALTH_NVML_POWER_CAP),
        .joules = joules - usage->last_j,
    };
    usage->last_j = joules;
    return ERR_OK;
}
