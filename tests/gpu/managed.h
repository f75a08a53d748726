/* The tests of ops on a GPU, whose tests hold operands in the program's own
 * memory. Programs that are linked with these objects and --wrap for
 * aligned_alloc, free and kernels_all have a table that enqueues an op and
 * waits for it, beside the CPU's best one, and aligned_alloc() (which
 * check_alloc() is) gives memory that both sides reach. An operand that lies
 * anywhere else, on the stack say, fails the test instead of the GPU.
 *
 * managed_cuda.o is the GPU; managed_host.o puts the kernels for the processor
 * in its place, so that the rest is tested where there is none. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "kernels/kernels.h"

struct managed_source {
    /* ERR_UNSUPPORTED: there is no GPU, and the text says why. */
    enum err (*start)(const struct kernels **inner, void **stream);
    /* NULL if there is no more; 256-byte aligned. */
    void *(*allocate)(size_t bytes);
    void (*release)(void *memory);
    enum err (*wait)(void *stream);
    /* Begins to keep the GPU busy with other work, or waits for its end. NULL:
     * there is none. */
    void (*noise)(bool on);
    /* An op failed, err_text() says why: tests look at results only. */
    void (*failed)(const char *op);
};

/* `failed` for tests: one that failed. */
void managed_failed(const char *op);

/* Of managed_cuda.o or managed_host.o. */
extern const struct managed_source managed_source;

/* The table; NULL without a GPU, err_text() says why. */
const struct kernels *managed_table(void);

/* Whether a living piece of aligned_alloc()'s holds the address, or ends
 * there. */
bool managed_holds(const void *address);

/* The piece that holds the address, or NULL. */
void *managed_piece(const void *address, size_t *bytes);

/* Makes aligned_alloc() take from the source from now on. */
void managed_memory_start(void);
