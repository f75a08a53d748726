/* GPUs as the driver knows them: how many there are, and what each says of
 * itself. No CUDA, so it costs little and changes nothing. */
#pragma once

#include "healthcheck/health.h"
#include "healthcheck/health_nvml.h"

/* GPUs that must be there: the administrator's number, else, in builds with
 * CUDA, NVIDIA's PCI devices below env->root. With 0 no check of GPUs runs; a
 * job to which CUDA_VISIBLE_DEVICES shows none has none. Reads names and
 * identity of PCI devices only, which ask no device. */
int health_gpu_expected(const struct health_env *env);

/* Adds a finding to the table, as a line "STATE CODE TEXT" (of those for which there is
 * room), and makes it the result if it is graver than what is there, and says whether
 * it is. The text begins with the GPU's number and PCI address, if it has one. */
bool health_gpu_found(struct health_result *out, enum health_state state,
                      const char *code, int gpu, const char *bus,
                      const char *format, ...)
    __attribute__((format(printf, 6, 7)));

/* What `count` GPUs said, into a result. */
void health_gpu_judge(const struct health_env *env,
                      const struct health_nvml_state *states, int count,
                      struct health_result *out);
