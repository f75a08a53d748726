/* Text to read: a file, or "-" for stdin, as a stream of bytes, unpacked if it
 * is packed with what src/data/codec/codec.h knows. */
#pragma once

#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

struct source;

/* idle is called at least once a second while waiting for input; what it returns
 * but ERR_OK ends the reading. NULL: it is not. */
struct source_options {
    enum err (*idle)(void *context);
    void *context;
    const char *encoding; /* iconv(1)'s name of it, lent; NULL: UTF-8 */
};

/* What is to be in it: text or prompts (src/text/binary_kind.h; also judged as
 * they are read), JSON lines, whose reader judges them but for known kinds of
 * other files, or anything. Whoever takes SOURCE_TEXT has an option --binary.
 */
enum source_wanted { SOURCE_TEXT, SOURCE_PROMPTS, SOURCE_RECORDS, SOURCE_ANY };

/* ERR_DATA for a missing file, a folder, and what is not wanted; ERR_USAGE for an
 * encoding that is not known. The options are copied; NULL: none. */
enum err source_open(const char *path, enum source_wanted wanted,
                     const struct source_options *options, struct source **out);
void source_close(struct source *source);

/* Up to `bytes` > 0 of what comes next; *got 0: the end. */
enum err source_read(struct source *source, uint8_t *data, size_t bytes,
                     size_t *got);

/* Leave out the next `bytes`; ERR_DATA when there are fewer. */
enum err source_skip(struct source *source, int64_t bytes);

/* How much of the file was read, packed as it is. */
int64_t source_position(const struct source *source);

/* Why a file is not what is wanted, in a word or two; *why NULL: it is, as far
 * as its beginning tells. Errors are those of a file that cannot be read. */
enum err source_kind(const char *path, enum source_wanted wanted,
                     const char *encoding, const char **why);

/* The path for messages: "stdin" for "-". Lent. */
const char *source_name(const struct source *source);
