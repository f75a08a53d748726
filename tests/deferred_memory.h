/* A device without hardware, whose work is done as late as the rules of struct
 * kernel_memory allow: what a stream holds runs when the host waits, or when
 * another stream that awaits it runs. Tensors have addresses that the host
 * cannot reach, and what is downloaded is spoiled until the copy has run. So
 * whoever forgets to wait finds old bytes. */
#pragma once

#include <stdbool.h>

#include "kernels/kernel_memory.h"

extern const struct kernel_memory deferred_memory;

/* Streams that run as early as allowed instead: so whoever forgets that one
 * should wait for another finds bytes too new, or too old. */
enum deferred_eager { EAGER_NONE, EAGER_URGENT, EAGER_OTHERS };

struct deferred {
    enum deferred_eager eager;
    const char *name; /* what identify says */
    int host_creates; /* so far */
    int lost;         /* streams destroyed with work left */
};
extern struct deferred deferred;

/* The memory behind the address of a tensor. */
void *deferred_reach(const void *tensor);
/* What a device does by itself while the host waits for something else. */
void deferred_progress(void);
/* Enqueue `run`, which is called again until it returns true. */
void deferred_call(void *stream, bool (*run)(void *), void *argument);
