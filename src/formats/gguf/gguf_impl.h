/* The head of a GGUF file: reads it, part by part, and finds out whether all
 * that it says can be. */
#pragma once

#include "src/formats/gguf/gguf.h"

/* As a tensor, it begins with its name. */
struct gguf_head_key {
    const char *name;
    struct gguf_value value;
};

struct gguf_head {
    const char *path;
    int fd;
    uint64_t file_bytes;
    uint8_t *data; /* the file's beginning */
    size_t at, read, capacity;
    uint32_t version;
    uint64_t alignment;
    struct gguf_head_key *key;
    struct gguf_tensor *tensor;
    size_t keys, tensors;
    const void **key_order, **tensor_order; /* pointers to them, by name */
};

/* path, fd and file_bytes are set, the rest is 0. What was taken is freed by
 * gguf_head_release() also if it fails. */
enum err gguf_head_read(struct gguf_head *head);
void gguf_head_release(struct gguf_head *head);

/* One of `count` in such an order by its name; NULL. */
const void *gguf_head_find(const void *const *order, size_t count,
                           const char *name);
