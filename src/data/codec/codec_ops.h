/* What one compression provides to codec.c: a file per library, codec_NAME.c.
 * Errors say what is wrong without the place. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "src/base/err.h"

/* What is left to unpack, and room for what comes out. */
struct codec_flow {
    const uint8_t *in;
    size_t in_bytes;
    uint8_t *out;
    size_t out_bytes;
    bool complete; /* all that began has ended; the input may end here */
};

/* All NULL: left out of this build. */
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
    codec_snappy_ops, codec_br_ops, codec_lz4_ops;

/* `bytes` of what came out `back` bytes before, which may be what this makes; there
 * is `room` for so many. Most are short: eight at a time, beyond their end where
 * that is room. */
static inline void codec_copy(uint8_t *out, size_t back, size_t bytes,
                              size_t room)
{
    for (size_t i = 0; back >= 8 && bytes + 8 <= room; i += 8) {
        if (i >= bytes)
            return;
        memcpy(out + i, out + i - back, 8);
    }
    for (; bytes > back; bytes -= back, out += back, back *= 2)
        memcpy(out, out - back, back);
    memcpy(out, out - back, bytes);
}
