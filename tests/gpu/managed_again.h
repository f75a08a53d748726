/* The same op on the same operands again and again, TESSERA_GPU_REPEAT times in
 * all, each time but the first beside other kernels: its outputs must keep
 * their bits. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#define MANAGED_AGAIN_PIECES 16

struct managed_again {
    int left; /* turns */
    bool first;
    int count;
    struct {
        char *memory, *before, *after; /* a piece that holds an operand */
        size_t bytes;
    } pieces[MANAGED_AGAIN_PIECES];
};

/* Before the first turn. */
void managed_again_begin(struct managed_again *again,
                         const void *const *operands, size_t count);
/* After a turn that went well: true if there is to be another, for which the
 * operands are what they were. Other bits fail the test. */
bool managed_again_next(struct managed_again *again, const char *op);
/* In any case. */
void managed_again_end(struct managed_again *again);
