/* What is not the same on all nodes of a job: versions (health_versions.h) and
 * clocks. Who has something else than most have is warned of, for nothing says that
 * it is worse. */
#pragma once

#include "healthcheck/health_versions.h"
#include "src/comm/comm.h"

struct health_same;

/* Gathers from all ranks; collective, all get the same. `inject`: "clock:HOST:ahead"
 * or NULL. The caller destroys *out. */
enum err health_same_run(struct comm *comm, const struct health_versions *own,
                         double skew_max_ms, const char *inject,
                         struct health_same **out);
void health_same_destroy(struct health_same *same);
/* HEALTH_OK or HEALTH_WARN. */
enum health_state health_same_state(const struct health_same *same);
/* Into the verdicts of health_pair_json(): those that are ok and should not be get
 * "warn", DIFFERS or CLOCK_SKEW, and the reason. */
void health_same_tell(const struct health_same *same, json_t *verdicts);
/* A line for each node that is not as most. */
void health_same_print(const struct health_same *same, FILE *file);
