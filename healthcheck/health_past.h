/* What a check saw at its earlier looks: a counter that is not zero says nothing, one
 * that grows does.
 *
 * A file for each check, ROOT/var/lib/tessera/past.CHECK, written by rename and by
 * root alone, since the folder is root's. Where it can't be read, or written, or there
 * is no clock, nothing has grown, nothing lasts and nothing ever was: never an error.
 * Counters begin anew with each start of the machine, and when they fall. */
#pragma once

#include "healthcheck/health.h"

#define HEALTH_PAST_FOLDER "/var/lib/tessera"
#define HEALTH_PAST_BYTES                                                      \
    (1 << 16) /* of a text in env->past, instead of a file */

struct health_past_entry {
    char kind; /* PAST_COUNTER, PAST_MOST, PAST_LASTING */
    bool seen; /* asked for at this look */
    char key[64];
    double then_s[2], value[2];
};

struct health_past {
    char path[1024], boot[64];
    char *memory; /* instead of the file; or NULL */
    double now_s; /* since the start of the machine; below 0: nothing is kept */
    double window_s;
    bool changed;
    struct health_past_entry *entries;
    int count, capacity;
};

/* Keys below are words, without blanks. */
void health_past_open(const struct health_env *env, const char *check,
                      struct health_past *past);
/* Writes what has changed, and frees. */
void health_past_close(struct health_past *past);

/* By how much a counter has grown within past.hours, or since the last look where
 * that is longer ago; *per_hour over that time, or over an hour if it is shorter.
 * A value below 0 is not known. */
double health_past_growth(struct health_past *past, const char *key,
                          double value, double *per_hour);
/* The most that a value was at earlier looks since the machine's start, *before in
 * those before it; 0: never more. */
double health_past_most(struct health_past *past, const char *key, double value,
                        double *before);
/* The next that has a most but was not asked for at this look, from *at on, which is
 * 0 at first; NULL: there is none. */
const char *health_past_gone(const struct health_past *past, int *at,
                             double *most);
/* Seconds for which something has been so at each look. */
double health_past_lasting(struct health_past *past, const char *key, bool is);

/* All checks' files: after a repair. */
void health_past_forget(const char *root);
