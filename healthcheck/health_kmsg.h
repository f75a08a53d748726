/* The kernel's log (/dev/kmsg), record by record. What checks look for in it is theirs. */
#pragma once

#include "src/base/err.h"

/* Calls `take` with the seconds since the machine's start and the text of each record
 * that counts: the kernel's own, not older than `hours`, after the last `dmesg --clear`
 * and after the last --repaired. */
enum err health_kmsg_read(const char *root, double hours,
                          void (*take)(void *arg, double when_s,
                                       const char *text),
                          void *arg);
