/* Monotonic time, wall time and sleep. Waits and deadlines use the first: the second
 * jumps when a node's clock is set. */
#include "src/base/clock.h"

#include <math.h>
#include <stddef.h>
#include <time.h>

/* Longer sleeps are cut to this; it keeps the conversion to time_t in range. */
#define CLOCK_SLEEP_MAX_S 1e9

static double clock_read(clockid_t id)
{
    struct timespec t = { 0 };
    clock_gettime(id, &t);
    return (double)t.tv_sec + 1e-9 * (double)t.tv_nsec;
}

double clock_now(void)
{
    return clock_read(CLOCK_MONOTONIC);
}

double clock_wall(void)
{
    return clock_read(CLOCK_REALTIME);
}

void clock_sleep(double seconds)
{
    /* written so that NaN does not sleep either */
    if (!(seconds > 0))
        return;
    double whole = floor(fmin(seconds, CLOCK_SLEEP_MAX_S));
    double part = fmin(seconds, CLOCK_SLEEP_MAX_S) - whole;
    struct timespec t = { .tv_sec = (time_t)whole,
                          .tv_nsec = (long)(part * 1e9) };
    nanosleep(&t, NULL);
}
