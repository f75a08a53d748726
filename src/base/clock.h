/* Time: a monotonic clock for durations, wall clock for records. */
#pragma once

/* Seconds from an arbitrary start, monotonic. */
double clock_now(void);
/* Seconds since 1970, for logs and records. */
double clock_wall(void);
/* Sleep this long or until a signal. */
void clock_sleep(double seconds);
