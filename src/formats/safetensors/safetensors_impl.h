/* What the parts of the safetensors reader share. */
#pragma once

#include <stdbool.h>

#include "src/base/fsio.h"
#include "src/formats/safetensors/safetensors.h"

struct safetensors_shard {
    char path[FSIO_PATH_MAX];
    const char *name; /* the path's last part */
    int fd;           /* -1: not open */
    int64_t bytes;
    int64_t data; /* where the header ends */
};

struct safetensors {
    struct safetensors_shard *shards;
    int shard_count;
    struct safetensors_tensor *list;
    int count;
    int capacity;
};

/* Adds the tensors of shard number `file`, which is open, unsorted. */
enum err safetensors_header_read(struct safetensors *set, int file);

/* The text of an index, which the caller frees, and the names of its files,
 * sorted, in an array that the caller frees name by name. */
struct safetensors_index {
    char path[FSIO_PATH_MAX];
    char *text;
    size_t bytes;
    char **names;
    int name_count;
};

/* Zeroed by the caller, who calls _free in any case. */
enum err safetensors_index_read(struct safetensors_index *index);
void safetensors_index_free(struct safetensors_index *index);
/* The index has each tensor of the set, which is sorted, once, where it is, and
 * no others. */
enum err safetensors_index_check(const struct safetensors_index *index,
                                 const struct safetensors *set);
