/* Measurements that must not share a process: memory is to be free again before
 * the next one starts. */
#pragma once

#include "src/base/err.h"

/* Runs work(arg, values) in a forked child and copies values[count] back; an
 * error of the child is returned with its text. The calling process must not
 * have used OpenMP. */
enum err bench_child(enum err (*work)(const void *arg, double *values),
                     const void *arg, double *values, int count);
