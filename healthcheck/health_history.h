/* What the nodes of a site have said of themselves: the lines of TESSERA_EVENTS
 * (schema "tessera-event/1", docs/events.md), counted by what was found, and each
 * decision with what its node did next. An administrator reads it before he lets
 * nodes be drained, and afterwards. */
#pragma once

#include <stdbool.h>
#include <stdio.h>

#include "src/base/err.h"

struct health_history;

/* Reads a file, or the *.jsonl and *.jsonl.old of a folder; events before since_s
 * (seconds since 1970) are left out. Lines that are none are counted. ERR_DATA:
 * there is no such file in the folder. The caller destroys it. */
enum err health_history_create(const char *path, double since_s,
                               struct health_history **out);
void health_history_destroy(struct health_history *history);
/* For people; or as one line of JSON, schema "tessera-report/1". */
enum err health_history_print(const struct health_history *history, bool json,
                              FILE *file);
/* "30d", "12h", "90m": seconds. ERR_USAGE. */
enum err health_history_age(const char *text, double *seconds);
