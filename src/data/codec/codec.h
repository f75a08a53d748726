/* Compression of shards and text files, which are read and never written: one
 * table of what Streaming names (zstd, gz, bz2, snappy, br), with the
 * level of its packing behind a colon, "zstd:3". bz2 and br may be left out of a
 * build; they are then refused with what to install.
 *
 * Concatenated gz members, zstd frames and bz2 streams are read as one. snappy
 * is the format without frames that Streaming writes: a whole file, not a
 * stream.
 *
 * Errors name the file. What is damaged, cut short or too long is ERR_DATA. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* What is left to unpack, and room for what comes out. */
struct codec_flow {
    const uint8_t *in;
    size_t in_bytes;
    uint8_t *out;
    size_t out_bytes;
    bool complete; /* all that began has ended; the input may end here */
};

/* What one compression provides; errors say what is wrong without the place. All
 * NULL: left out of this build. */
struct codec_ops {
    enum err (*open)(void **state);
    void (*close)(void *state);
    /* Move on as far as input and room allow. */
    enum err (*step)(void *state, struct codec_flow *flow);
    /* A whole file to exactly `out_bytes`, in place of open, close and step. */
    enum err (*unpack)(const uint8_t *data, size_t bytes, uint8_t *out,
                       size_t out_bytes);
};

extern const struct codec_ops codec_zstd_ops, codec_gz_ops, codec_bz2_ops,
    codec_snappy_ops, codec_br_ops, codec_lz4_ops, codec_lz4_frame_ops;

struct codec {
    const char *name;         /* Streaming's, and its extension of a shard */
    const char *extension;    /* of text files: "zst" */
    const char *package;      /* what to install for it, Debian's name */
    int level_min, level_max; /* both 0: it has none */
    const struct codec_ops *ops;
};

/* The codec of "zstd" or "zstd:3". ERR_DATA for a name or level that there is
 * not, ERR_UNSUPPORTED for one that was left out of the build. */
enum err codec_find(const char *text, const struct codec **out);

/* ERR_UNSUPPORTED where it was left out of the build. */
enum err codec_check(const struct codec *codec);

/* By the end of a file's name, ".zst"; NULL: none. */
const struct codec *codec_by_extension(const char *path);

/* By a file's first bytes; NULL: none. br and snappy have no such mark. */
const struct codec *codec_by_magic(const uint8_t *data, size_t bytes);

/* Unpack a file into a new one, which must have exactly `bytes`: nothing above
 * is ever written, and what a snappy file claims is not believed. `to` may not
 * exist; after an error it does not. It is not synced. `sums` takes all that is
 * written, which the caller compares then; NULL: none. */
struct file_sums;
enum err codec_unpack_file(const char *text, const char *from, const char *to,
                           int64_t bytes, struct file_sums *sums);

/* All of it, in memory, to exactly `out_bytes`; `name` is for messages, which have
 * no place. ERR_UNSUPPORTED where the codec was left out of the build. */
enum err codec_unpack_bytes(const struct codec_ops *ops, const char *name,
                            const uint8_t *data, size_t bytes, uint8_t *out,
                            size_t out_bytes);

/* A text as it is unpacked, of an open file, of whose beginning `bytes` were
 * read already: `head`, which is copied, below 256 KiB. The descriptor and the
 * path, for messages, are lent. snappy is ERR_UNSUPPORTED. */
struct codec_reader;
enum err codec_reader_open(const struct codec *codec, const char *path, int fd,
                           const uint8_t *head, size_t bytes,
                           struct codec_reader **out);
void codec_reader_close(struct codec_reader *reader);
/* Up to `bytes` > 0 bytes; *got 0: the end. */
enum err codec_reader_read(struct codec_reader *reader, uint8_t *data,
                           size_t bytes, size_t *got);
/* Bytes of the file that were read so far, for progress. */
int64_t codec_reader_position(const struct codec_reader *reader);
