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
