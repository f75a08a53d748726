/* When a listener that takes figures now and then takes them (monitor.*): at the
 * first logged step at or after each end of its interval, for other steps have
 * no record. The same on all ranks. In steps it is the same however often the
 * run was restarted; in seconds it is by rank 0's clock. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/base/units.h"

struct step_record;
struct run;

struct monitor_due {
    int64_t log_interval;
    int64_t steps;  /* 0: none, or seconds */
    double seconds; /* 0 likewise */
    bool begun;
    double last_s; /* training time of rank 0 */
};

/* ERR_USAGE names the setting: seconds where they are not allowed. */
enum err monitor_due_create(const struct run *run, const char *key,
                            struct duration interval, bool seconds,
                            struct monitor_due *out);

/* Whether there is an interval at all. */
bool monitor_due_ever(const struct monitor_due *due);

/* Whether step number `step`, from 1 on, is one, of an interval in steps: known
 * before it. */
bool monitor_due_step(const struct monitor_due *due, int64_t step);

/* In batch_end, of each step once. */
bool monitor_due_now(struct monitor_due *due, const struct step_record *step);
