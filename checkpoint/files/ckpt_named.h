/* Names in the order of strcmp(), each with a number: how tensors, items and
 * files are found by name. */
#pragma once

#include <stddef.h>

#include "checkpoint/files/ckpt_manifest.h"

struct ckpt_named {
    const char *name; /* lent */
    int index;
};

void ckpt_named_sort(struct ckpt_named *list, size_t count);
/* In a sorted list; -1: it is not there. */
int ckpt_named_find(const struct ckpt_named *list, size_t count,
                    const char *name);

/* The manifest's tensors, sorted; malloc'ed. NULL: out of memory. */
struct ckpt_named *ckpt_named_tensors(const struct ckpt_manifest *manifest);
