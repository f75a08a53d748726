/* Whole files as memory, for bytes that travel between nodes without a copy. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct ckpt_map {
    void *data; /* NULL: nothing is mapped */
    size_t bytes;
};

/* Map a file of `bytes` > 0 bytes to read it; or make it, with its folder, all
 * zero, its space reserved, to write it. */
enum err ckpt_map_file(const char *path, int64_t bytes, bool make,
                       struct ckpt_map *out);
/* Nothing mapped is fine. */
void ckpt_map_release(struct ckpt_map *map);
