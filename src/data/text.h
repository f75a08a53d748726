/* Text files as documents, in pieces of bounded size. */
#ifndef TESSERA_DATA_TEXT_H
#define TESSERA_DATA_TEXT_H

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* No piece is longer. */
#define TEXT_PIECE_BYTES_MAX ((size_t)1 << 20)

struct text_sink {
    void *context;
    /* The next bytes > 0 of a document. */
    enum err (*piece)(void *context, const uint8_t *text, size_t bytes);
    /* The document is complete; not called for an empty one. */
    enum err (*end)(void *context);
    /* Called at least once a second while waiting for input; NULL: not. */
    enum err (*idle)(void *context);
};

/* Read `path` ("-": stdin) as one document, or, with a separator, as those
 * between lines that are exactly the separator (at most 4096 bytes, no line
 * end in it; "": blank lines), which belong to none. ERR_DATA for a missing
 * file, a folder, and text that is compressed. */
enum err text_read(const char *path, const char *separator,
                   const struct text_sink *sink);

/* Bytes of all the files; -1 where that is not known before reading. */
int64_t text_total_bytes(char *const *paths, int count);

#endif
