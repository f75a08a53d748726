/* What of a node should be the same on every node of a job: each as a short text.
 * The check "versions" reads them and is always ok, its verdict tells them; that
 * a job's nodes differ is seen by health_same.h. */
#pragma once

#include <jansson.h>

#include "healthcheck/health.h"

/* Names of the verdict's field; the finder of each is in health_versions.c. */
#define HEALTH_VERSIONS(VERSION)                                               \
    VERSION(kernel)                                                            \
    VERSION(driver)                                                            \
    VERSION(firmware)                                                          \
    VERSION(processor)                                                         \
    VERSION(memory)                                                            \
    VERSION(mpi)                                                               \
    VERSION(nccl)

#define HEALTH_VERSION_INDEX(name) HEALTH_VERSION_##name,
enum health_version {
    HEALTH_VERSIONS(HEALTH_VERSION_INDEX) HEALTH_VERSION_COUNT
};

#define HEALTH_VERSION_BYTES 96

struct health_versions { /* "": not there, or not asked */
    char of[HEALTH_VERSION_COUNT][HEALTH_VERSION_BYTES];
};

extern const char *const health_version_names[HEALTH_VERSION_COUNT];

/* This node's, as a job sees them; "" where the check does not run. It is a child's, so
 * there may be no threads yet. */
void health_versions_find(const struct health_env *env,
                          struct health_versions *out);
/* {"digest": ..., "kernel": ..., ...}; NULL: the verdict has none. */
json_t *health_versions_json(const struct health_verdict *verdict);
