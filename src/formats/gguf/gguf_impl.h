/* The head of a GGUF file: reads it, part by part, and finds out whether all
 * that it says can be. */
#pragma once

#include "src/formats/gguf/gguf.h"

/* path, fd and file_bytes are set, the rest is 0. What was taken is freed by
 * gguf_head_release() also if it fails. */
enum err gguf_head_read(struct gguf *gguf);
void gguf_head_release(struct gguf *gguf);

/* One of `count` in such an order by its name; NULL. */
const void *gguf_head_find(const void *const *order, size_t count,
                           const char *name);
