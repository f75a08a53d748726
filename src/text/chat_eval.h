/* Expressions of chat templates, evaluated as Jinja does in Python. */
#ifndef TESSERA_TEXT_CHAT_EVAL_H
#define TESSERA_TEXT_CHAT_EVAL_H

#include "src/base/err.h"
#include "src/text/chat_parse.h"
#include "src/text/chat_value.h"

/* Variables: those of inner blocks first. */
struct chat_scope {
    struct chat_memory *memory;
    struct chat_field *first;
};

/* ERR_DATA names the line, and what is not known here. */
enum err chat_eval(struct chat_scope *scope, const struct chat_node *node,
                   struct chat_value *out);

/* A function, name(...), or a method, object.name(...), whose arguments are
 * the ARGUMENTs of the node's b; and a filter, object | name(...). */
enum err chat_eval_call(struct chat_scope *scope, const struct chat_node *node,
                        struct chat_value *out);
enum err chat_eval_filter(struct chat_scope *scope,
                          const struct chat_node *node, struct chat_value *out);

#endif
