/* Statements of chat templates, which write a text: chat_render.c runs them for
 * chat.c. */
#pragma once

#include "src/base/err.h"
#include "src/text/chat/chat.h"
#include "src/text/chat/chat_eval.h"
#include "src/text/chat/chat_parse.h"
#include "src/text/chat/chat_value.h"

struct chat_render_input {
    const struct chat_message *messages;
    size_t count;
    bool add_generation_prompt;
    const char *bos, *eos; /* NULL: there is none */
    size_t bos_bytes, eos_bytes;
};

/* Overwrites `out`. memory->work counts on, everything else is released. turns:
 * where generation blocks are in it, with room for input->count; or NULL. */
enum err chat_render_tree(const struct chat_tree *tree,
                          const struct chat_render_input *input,
                          struct chat_memory *memory, struct chat_text *out,
                          struct chat_turn *turns, size_t *turn_count);
