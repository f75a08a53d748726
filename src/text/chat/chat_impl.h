/* A template, which chat.c reads and chat_render.c runs. */
#pragma once

#include "src/base/err.h"
#include "src/text/chat/chat.h"
#include "src/text/chat/chat_eval.h"
#include "src/text/chat/chat_parse.h"
#include "src/text/chat/chat_value.h"

struct chat_template {
    char *name;
    struct chat_tree tree;
    struct chat_value bos, eos; /* texts; zeros: none */
};

/* Overwrites `out`. memory->work counts on, everything else is released. turns:
 * where generation blocks are in it, with room for `count`; or NULL. */
enum err chat_render_turns(const struct chat_template *template,
                           const struct chat_message *messages, size_t count,
                           bool prompt, struct chat_memory *memory,
                           struct chat_text *out, struct chat_turn *turns,
                           size_t *turn_count);
