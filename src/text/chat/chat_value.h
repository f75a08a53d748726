/* What the expressions of a chat template are, and the memory of one rendering:
 * all of it goes away at once. Work and memory have a limit, so that no
 * template and no conversation can take more. */
#pragma once

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <string.h>

#include "src/base/err.h"

/* Bytes that a rendering holds at most. */
#define CHAT_VALUE_BYTES_MAX ((size_t)1 << 28)
/* Most work for a conversation: bytes that are copied, and 64 for each step. */
#define CHAT_VALUE_WORK_MAX ((int64_t)1 << 32)
/* How deeply values and what is evaluated lie in one another at most. */
#define CHAT_VALUE_DEPTH_MAX 100
#define CHAT_VALUE_CALLS_MAX 1500

enum chat_value_kind {
    CHAT_VALUE_UNDEFINED, /* zeros */
    CHAT_VALUE_NONE,
    CHAT_VALUE_BOOLEAN,
    CHAT_VALUE_INTEGER,
    CHAT_VALUE_STRING,
    CHAT_VALUE_LIST,
    CHAT_VALUE_RECORD, /* names and values: a message, loop, a namespace */
    CHAT_VALUE_MACRO
};

struct chat_node;
struct chat_frame;

struct chat_value {
    enum chat_value_kind kind;
    bool may_change; /* CHAT_VALUE_RECORD: a namespace */
    bool tuple;      /* CHAT_VALUE_LIST */
    union {
        int64_t integer; /* and boolean */
        const char *text;
        struct chat_value *list;
        struct chat_field *record; /* in the order of insertion */
        const struct chat_macro *macro;
    } as;
    size_t count; /* of a text bytes, of a list values */
};

struct chat_field {
    const char *name;
    size_t bytes;
    struct chat_value value;
    struct chat_field *next;
};

/* A macro, and the variables that are there where it stands. */
struct chat_macro {
    const struct chat_node *node;
    struct chat_frame *frame;
};

struct chat_value_block;

/* Where one conversation is rendered; zeros at first. */
struct chat_memory {
    struct chat_value_block *last;
    size_t bytes; /* of all blocks */
    int64_t work; /* of the conversation so far */
    int calls;    /* that are going on, of what evaluates and renders */
};

/* Aligned, not cleared. ERR_DATA: more than a rendering may hold. */
enum err chat_value_room(struct chat_memory *memory, size_t bytes, void **out);
void chat_value_release(struct chat_memory *memory);
/* ERR_DATA: more than a conversation may take. */
enum err chat_value_work(struct chat_memory *memory, size_t bytes);
/* A call begins, which ends by memory->calls--. ERR_DATA: too deep. */
enum err chat_value_call(struct chat_memory *memory);

struct chat_value chat_value_string(const char *text, size_t bytes);
struct chat_value chat_value_integer(int64_t integer);
struct chat_value chat_value_boolean(bool value);
const char *chat_value_name(const struct chat_value *value);

/* Whether a name of so many bytes is this one. */
static inline bool chat_value_is_name(const char *name, size_t bytes,
                                      const char *known)
{
    return bytes == strlen(known) && memcmp(name, known, bytes) == 0;
}

/* As Python has them: empty things and zeros are false. */
bool chat_value_true(const struct chat_value *value);
/* ERR_DATA: values that lie too deep in one another. */
enum err chat_value_equal(struct chat_memory *memory,
                          const struct chat_value *a,
                          const struct chat_value *b, bool *out);
/* As it is printed. */
enum err chat_value_text(struct chat_memory *memory,
                         const struct chat_value *value,
                         struct chat_value *out);
/* As JSON, or else as Python's repr(); on one line for an indent below 0. */
enum err chat_value_print(struct chat_memory *memory,
                          const struct chat_value *value, bool json,
                          int64_t indent, struct chat_value *out);
/* A list with room for `count`, of which none is filled. */
enum err chat_value_list(struct chat_memory *memory, size_t count,
                         struct chat_value *out);
enum err chat_value_join(struct chat_memory *memory, const struct chat_value *a,
                         const struct chat_value *b, struct chat_value *out);

/* The name of a field that has this key, a text or a whole number: that one's
 * is written behind a \1. ERR_DATA: no other is known here. */
enum err chat_value_key(struct chat_memory *memory,
                        const struct chat_value *key, struct chat_value *out);
/* The key of a field. */
struct chat_value chat_value_of_key(const struct chat_field *field);

/* The field of a record; NULL: there is none. */
struct chat_field *chat_value_field(const struct chat_value *record,
                                    const char *name, size_t bytes);
/* A field behind the others; one of this name gets another value. */
enum err chat_value_set_field(struct chat_memory *memory,
                              struct chat_value *record, const char *name,
                              size_t bytes, struct chat_value value);
/* A field before the others. */
enum err chat_value_add_field(struct chat_memory *memory,
                              struct chat_value *record, const char *name,
                              size_t bytes, struct chat_value value);
