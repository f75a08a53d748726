/* Log lines for people, on stderr: `month-day time rank host module: message`;
 * on a terminal the words "warning" and "error" have colours, but with NO_COLOR.
 *
 * Metrics do not go here (src/train/listeners/on_metrics.c). The log sink is one of the
 * three globals that the project allows. Messages are lower case, one line, and
 * say the cause. Thread-safe; a line is written by one write(2). A reader that
 * has stopped reading stops nothing: after a second lines are dropped until it
 * reads again, and the next line tells how many. */
#pragma once

#include <stddef.h>

enum log_level { LOG_ERROR, LOG_WARN, LOG_INFO, LOG_DEBUG };
static const char *const log_level_names[] = { "error", "warn", "info", "debug",
                                               NULL };

/* Set what precedes every line. rank < 0: no rank is shown. The module name is
 * copied (at most 15 bytes). First of all in a main: stdin, stdout and stderr
 * are opened on /dev/null where they are closed. */
void log_init(const char *module, int rank, enum log_level level);

/* Only lines of this level or graver are written; rank 0 is usually LOG_INFO,
 * the others LOG_WARN. */
void log_set_level(enum log_level level);

void log_error(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_warn(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_info(const char *format, ...) __attribute__((format(printf, 1, 2)));
void log_debug(const char *format, ...) __attribute__((format(printf, 1, 2)));
