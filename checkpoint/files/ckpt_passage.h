/* A shard's file from its first byte to its last: the frame, and between its
 * parts the extents. */
#pragma once

#include <stdbool.h>

#include "checkpoint/files/ckpt_manifest.h"
#include "checkpoint/files/ckpt_stream.h"

#define CKPT_PASSAGE_BYTES ((int64_t)256 << 10)

/* Where its bytes are read, and where they go. */
struct ckpt_passage {
    const char *path;
    int fd;
    char *buffer;               /* CKPT_PASSAGE_BYTES */
    struct ckpt_stream *stream; /* NULL: they are only summed */
    bool lost; /* bytes that can't be read are as good as damaged: there may be
                * another copy */
};

/* Bytes [begin, end) of the file, to the stream and into *crc. */
enum err ckpt_passage_step(const struct ckpt_passage *p, int64_t begin,
                           int64_t end, uint32_t *crc);

typedef enum err (*ckpt_passage_fn)(void *arg,
                                    const struct ckpt_extent *extent);

/* The frame, and between its parts `each` extent; NULL: those are left out. */
enum err ckpt_passage_all(const struct ckpt_passage *p,
                          const struct ckpt_shard *shard, ckpt_passage_fn each,
                          void *arg, uint32_t *frame_crc);

/* The CRC32C of each of the shard's blocks, from its manifest, or from its file,
 * whose frame has them: until that is checked they are not believed. Malloc'ed,
 * and to be freed after an error too. */
enum err ckpt_passage_sums(const struct ckpt_passage *p,
                           const struct ckpt_shard *shard, uint32_t **sums);

/* CRC32C over all bytes of the file that belong to no extent. */
enum err ckpt_passage_frame_crc(int fd, const char *path,
                                const struct ckpt_shard *shard, uint32_t *crc);
