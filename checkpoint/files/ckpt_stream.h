/* Overwriting a file from its first byte to its last, in large aligned writes
 * that go on in the background while the next bytes are prepared. Several
 * processes of one node may write a file together, each the bytes that the
 * others skip: pages in which two of them have some are written through the
 * page cache, which they share. */
#pragma once

#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"

/* Two of these are all the memory that a stream has. */
#define CKPT_STREAM_BUFFER_BYTES ((int64_t)8 << 20)
/* Aligned data of this size, at an aligned place of the file, is written from
 * where it lies; all else is copied to a buffer first. */
#define CKPT_STREAM_DIRECT_BYTES ((int64_t)1 << 20)

struct ckpt_stream;

/* The file, made if need be, will have `bytes` bytes, which are reserved now, so that
 * a full disk shows before the work. */
enum err ckpt_stream_create(const char *path, int64_t bytes,
                            struct ckpt_stream **out);
/* The same for a file that another process of this node has made so, and will
 * end: ckpt_stream_finish() waits for what was put, and no more. */
enum err ckpt_stream_join(const char *path, int64_t bytes,
                          struct ckpt_stream **out);
/* NULL is fine. */
void ckpt_stream_destroy(struct ckpt_stream *stream);

/* The next bytes. Data of CKPT_STREAM_DIRECT_BYTES and more must stay as it is
 * until ckpt_stream_finish(). */
enum err ckpt_stream_put(struct ckpt_stream *stream, const void *data,
                         int64_t bytes);

/* What comes next belongs to the file's byte number `at`, which is not before
 * the last that was put: what lies between is another's. */
enum err ckpt_stream_skip(struct ckpt_stream *stream, int64_t at);

/* Whether data at this address, if large, is written from where it lies. */
bool ckpt_stream_takes(const void *data);

/* All bytes were put: write the rest and make the file durable. */
enum err ckpt_stream_finish(struct ckpt_stream *stream);
