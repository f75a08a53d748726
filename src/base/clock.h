/* Time: a monotonic clock for durations, wall clock for records. */
#ifndef TESSERA_BASE_CLOCK_H
#define TESSERA_BASE_CLOCK_H

/* Seconds from an arbitrary start, monotonic. */
double clock_now(void);
/* Seconds since 1970, for logs and records. */
double clock_wall(void);
/* Sleep this long or until a signal. */
void clock_sleep(double seconds);

#endif
