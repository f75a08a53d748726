/* Expressions of chat templates, evaluated as Jinja does in Python. */
#pragma once

#include "src/base/err.h"
#include "src/text/chat/chat_parse.h"
#include "src/text/chat/chat_value.h"

/* Variables of a block, and of those around it. */
struct chat_frame {
    struct chat_value own;    /* CHAT_VALUE_RECORD, or zeros: none */
    struct chat_frame *outer; /* NULL: there is none */
};

struct chat_scope {
    struct chat_memory *memory;
    struct chat_frame *frame;
    struct chat_render_job *job; /* of the statements, for macros */
};

/* ERR_DATA names the line, and what is not known here. */
enum err chat_eval(struct chat_scope *scope, const struct chat_node *node,
                   struct chat_value *out);

/* A function or macro, name(...), or a method, object.name(...), whose arguments
 * are the ARGUMENTs of the node's b; and a filter, object | name(...). */
enum err chat_eval_call(struct chat_scope *scope, const struct chat_node *node,
                        struct chat_value *out);
enum err chat_eval_filter(struct chat_scope *scope,
                          const struct chat_node *node, struct chat_value *out);

/* The variable of this name; zeros if there is none. */
enum err chat_eval_variable(struct chat_scope *scope, const char *name,
                            size_t bytes, struct chat_value *out);

/* The text that a value is printed as. */
enum err chat_eval_printed(struct chat_scope *scope,
                           const struct chat_node *node,
                           const struct chat_value *value,
                           struct chat_value *out);

/* The text of statements, with the variables of `scope`, for macros and blocks
 * that are values: an expression may hold statements, as these hold expressions,
 * so chat_render.c does it. */
enum err chat_render_capture(struct chat_scope *scope,
                             const struct chat_node *body,
                             struct chat_value *out);

/* --- what the files of functions, filters, methods and tests share --- */

#define CHAT_EVAL_ARGUMENTS 4

/* Several functions of a template that are one here, in their rows. */
enum chat_eval_way {
    CHAT_EVAL_FRONT = 1, /* what is stripped, or looked at */
    CHAT_EVAL_BACK = 2,
    CHAT_EVAL_UPPER = 1, /* letters, or those that begin a word */
    CHAT_EVAL_KEYS = 1,  /* what a list of a dictionary has */
    CHAT_EVAL_VALUES = 2,
    CHAT_EVAL_LEAST = 1,     /* of items, else the most */
    CHAT_EVAL_ATTRIBUTE = 1, /* what is tested; what does not hold is wanted */
    CHAT_EVAL_REJECT = 2
};

/* What a function gets: its values, in order; one that is not given is
 * undefined. */
struct chat_eval_arguments {
    struct chat_scope *scope;
    const struct chat_node *node;
    struct chat_value value[CHAT_EVAL_ARGUMENTS]; /* the object first */
    size_t count;  /* one more than the last that is given */
    unsigned ways; /* enum chat_eval_way */
};

typedef enum err chat_eval_fn(struct chat_eval_arguments *arguments,
                              struct chat_value *out);

struct chat_eval_function {
    const char *name;
    chat_eval_fn *run;
    unsigned ways;
    size_t least, most;      /* arguments, with the object */
    enum chat_value_kind of; /* the object; CHAT_VALUE_UNDEFINED: anything */
    const char *names[CHAT_EVAL_ARGUMENTS - 1]; /* behind the object */
};

/* For texts: chat_eval_text.c. */
chat_eval_fn chat_eval_strip, chat_eval_case, chat_eval_title, chat_eval_ends,
    chat_eval_split, chat_eval_replace, chat_eval_indent, chat_eval_int,
    chat_eval_find, chat_eval_format;
/* For lists and dictionaries: chat_eval_list.c. */
chat_eval_fn chat_eval_length, chat_eval_end, chat_eval_join, chat_eval_fields,
    chat_eval_list, chat_eval_reverse, chat_eval_sort, chat_eval_dictsort,
    chat_eval_unique, chat_eval_get, chat_eval_range, chat_eval_select,
    chat_eval_map, chat_eval_extreme;

/* What one of them gives for these values, the second of which may be zeros. */
static inline enum err chat_eval_apply(struct chat_scope *scope,
                                       const struct chat_node *node,
                                       chat_eval_fn *run, unsigned ways,
                                       struct chat_value a, struct chat_value b,
                                       struct chat_value *out)
{
    struct chat_eval_arguments arguments = { scope, node, { a, b }, 2, ways };
    return run(&arguments, out);
}

/* A text's characters, or a dictionary's names, are a list. ERR_DATA: what has
 * no items. */
enum err chat_eval_iterate(struct chat_scope *scope, int line,
                           const struct chat_value *of, struct chat_value *out);
/* Less, equal or greater: numbers or texts. ERR_DATA: of others. */
enum err chat_eval_order(int line, const struct chat_value *a,
                         const struct chat_value *b, int *out);
/* A test of values, by name (chat_eval_text.c). */
enum err chat_eval_holds(struct chat_eval_arguments *arguments,
                         const char *name, size_t bytes, bool *out);
enum err chat_eval_test(struct chat_scope *scope, const struct chat_node *node,
                        struct chat_value *out);
/* A filter by name, of values. */
enum err chat_eval_filter_named(struct chat_eval_arguments *arguments,
                                const char *name, size_t bytes,
                                struct chat_value *out);
/* Whether a function has this name, which then is defined. */
bool chat_eval_is_function(const char *name, size_t bytes);
/* The values of node->b behind the object's. */
enum err chat_eval_read(struct chat_eval_arguments *arguments,
                        const struct chat_eval_function *of);
