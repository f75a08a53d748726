/* The record in a run lock's file: who owns the run. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <sys/types.h>

#include "src/base/err.h"

#define LOCK_BEAT_S_MIN 0.001
#define LOCK_BEAT_S_MAX 60.0

struct lock_owner {
    char cluster[128]; /* "": not in a job of Slurm */
    char host[256];
    char boot_id[64];
    char pid_namespace[64];
    double beat_s;
    long long pid;
    int64_t start_time; /* clock ticks since boot */
    long long job;
    long long attempt;
};

/* What a lock file holds, and whose it is. */
struct lock_file {
    char *text; /* NULL: there is none */
    size_t bytes;
    uid_t uid;
};

/* This process, and its job. */
enum err lock_record_self(struct lock_owner *self, double beat_s);

/* A JSON object in one line, which the caller frees; NULL: the host's name is
 * not UTF-8. */
char *lock_record_format(const struct lock_owner *owner);
/* false: that is not a record. */
bool lock_record_parse(const struct lock_file *file, struct lock_owner *out);

/* out->text, which the caller frees, is NULL where there is no file. What is
 * not a regular file reads as an empty one. */
enum err lock_record_read(const char *path, struct lock_file *out);

/* For an owner on this host, boot and PID namespace: is its process gone, or
 * another one in its place? */
bool lock_record_gone(const struct lock_owner *owner);
