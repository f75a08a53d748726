/* The kernel's log (/dev/kmsg), record by record. What checks look for in it is theirs. */
#pragma once

#include "healthcheck/health.h"

/* Calls `take` with the seconds since the machine's start and the text of each record
 * that counts: the kernel's own, not older than `hours`, after the last `dmesg --clear`
 * and after the last --repaired. That a user may not read it, as where
 * kernel.dmesg_restrict is 1, or that a container has none, says nothing of the node:
 * then out->text has why nothing was seen. */
enum err health_kmsg_read(const struct health_env *env, double hours,
                          void (*take)(void *arg, double when_s,
                                       const char *text),
                          void *arg, struct health_result *out);
