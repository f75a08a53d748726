/* What the expressions of a chat template are, and the memory of one rendering:
 * all of it goes away at once. Work and memory have a limit, so that no
 * template and no conversation can take more. */
#ifndef TESSERA_TEXT_CHAT_VALUE_H
#define TESSERA_TEXT_CHAT_VALUE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "src/base/err.h"

/* Bytes that a rendering holds at most. */
#define CHAT_VALUE_BYTES_MAX ((size_t)1 << 28)
/* Of a conversation: bytes that are copied, and 64 for each step. */
#define CHAT_VALUE_WORK_MAX ((int64_t)1 << 32)

enum chat_value_kind {
    CHAT_VALUE_UNDEFINED, /* zeros */
    CHAT_VALUE_NONE,
    CHAT_VALUE_BOOLEAN,
    CHAT_VALUE_INTEGER,
    CHAT_VALUE_STRING,
    CHAT_VALUE_LIST,
    CHAT_VALUE_RECORD /* names and values: a message, loop, a namespace */
};

struct chat_value {
    enum chat_value_kind kind;
    bool may_change; /* CHAT_VALUE_RECORD: a namespace */
    union {
        int64_t integer; /* and boolean */
        const char *text;
        struct chat_value *list;
        struct chat_field *record;
    } as;
    size_t count; /* of a text bytes, of a list values */
};

struct chat_field {
    const char *name;
    size_t bytes;
    struct chat_value value;
    struct chat_field *next;
};

struct chat_value_block;

/* Where one conversation is rendered; zeros at first. */
struct chat_memory {
    struct chat_value_block *last;
    size_t bytes; /* of all blocks */
    int64_t work; /* of the conversation so far */
};

/* Aligned, not cleared. ERR_DATA: more than a rendering may hold. */
enum err chat_value_room(struct chat_memory *memory, size_t bytes, void **out);
void chat_value_release(struct chat_memory *memory);
/* ERR_DATA: more than a conversation may take. */
enum err chat_value_work(struct chat_memory *memory, size_t bytes);

struct chat_value chat_value_string(const char *text, size_t bytes);
struct chat_value chat_value_integer(int64_t integer);
struct chat_value chat_value_boolean(bool value);
const char *chat_value_name(const struct chat_value *value);
bool chat_value_is(const struct chat_value *value, const char *text);

/* As Python has them: empty things and zeros are false. */
bool chat_value_true(const struct chat_value *value);
/* ERR_UNSUPPORTED, with a text: of kinds that are not compared here. */
enum err chat_value_equal(const struct chat_value *a,
                          const struct chat_value *b, bool *out);
/* As it is printed. */
enum err chat_value_text(struct chat_memory *memory,
                         const struct chat_value *value,
                         struct chat_value *out);
enum err chat_value_join(struct chat_memory *memory, const struct chat_value *a,
                         const struct chat_value *b, struct chat_value *out);

/* The field of a record; NULL: there is none. */
struct chat_field *chat_value_field(const struct chat_value *record,
                                    const char *name, size_t bytes);
/* A field before the others. */
enum err chat_value_add_field(struct chat_memory *memory,
                              struct chat_value *record, const char *name,
                              size_t bytes, struct chat_value value);

#endif
