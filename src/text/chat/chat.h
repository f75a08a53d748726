/* Conversations as text: chat templates.
 *
 * A template makes the text that a model was trained on of messages with roles,
 * and ends it, if asked, with what begins the assistant's next message. There
 * are built-in ones:
 *   chatml   "<|im_start|>user\nHello<|im_end|>\n<|im_start|>assistant\n..."
 *   llama3   as Llama 3's, with <|begin_of_text|> and <|eot_id|>
 *   none     the contents one after the other, nothing between
 * and files in Jinja's language, chat_template.jinja, or a JSON file with such a
 * text as "chat_template" (tokenizer_config.json).
 *
 * Of Jinja there are: {{ }}, {% %}, {# #} and their white space as the Hugging
 * Face library has it; for, also over several variables and with if and else,
 * loop.first, last, index, index0, length, revindex, revindex0, previtem,
 * nextitem, break, continue; if, elif, else; set, also of a block and of fields
 * of a namespace(); macro, filter, and generation, which marks what the assistant
 * says; texts, whole numbers, lists, tuples, dictionaries, true, false, none;
 * names, .name, [key], [from:to:step]; or, and, not, ==, !=, <, <=, >, >=, in, +,
 * -, *, //, %, ~, if-else; tests (chat_eval_text.c); the functions, filters and
 * methods of chat_eval_call.c, of which strftime_now() takes the day from
 * SOURCE_DATE_EPOCH if that is set. Other statements are refused by name when a
 * file is read; all else is refused when it is reached, since files of
 * models that call tools name many for that alone. */
#pragma once

#include <stdbool.h>
#include <stddef.h>

#include "src/base/err.h"
#include "src/text/tokenizer/tokenizer.h"

#define CHAT_TEMPLATE_DEFAULT "chatml"

/* The last message of what is learned is the assistant's. */
#define CHAT_ROLE_ASSISTANT "assistant"

struct chat_message {
    const char *role; /* one of chat_roles */
    const char *content;
    size_t bytes; /* of content, which is UTF-8 */
};

/* system, user, assistant, tool; NULL behind the last. */
extern const char *const chat_roles[];

/* A text that grows; the caller frees `text`. Zeros: an empty one. */
struct chat_text {
    char *text; /* NULL: never filled */
    size_t bytes, capacity;
};

struct chat_template;

/* A built-in one's name, or a file. bos_token and eos_token of the template are
 * the tokenizer's, lent. ERR_DATA names the file and the line; a template whose
 * markers "<|...|>" are no tokens of the tokenizer's is refused, but for
 * "bytes", which has none. */
enum err chat_template_create(const char *name,
                              const struct tokenizer *tokenizer,
                              struct chat_template **out);
/* The same of a template's text, which `name` is what messages call. */
enum err chat_template_create_text(const char *name, const char *text,
                                   size_t bytes,
                                   const struct tokenizer *tokenizer,
                                   struct chat_template **out);
void chat_template_destroy(struct chat_template *template);

/* The text of the messages; `out` is overwritten. add_generation_prompt: with
 * what begins the assistant's next message. ERR_DATA: what the template
 * raises, and what it cannot do. */
enum err chat_render(const struct chat_template *template,
                     const struct chat_message *messages, size_t count,
                     bool add_generation_prompt, struct chat_text *out);

/* One turn: up to where the assistant's message begins, and to where it ends,
 * in bytes from the beginning. */
struct chat_turn {
    size_t prompt, response;
};

/* chat_render() of all messages, and a turn for each assistant's message. The
 * template is asked for the text up to each of them, as LLM Foundry does;
 * ERR_DATA where one is not the beginning of the next, so that what the
 * assistant said has no place of its own. One that has generation blocks is
 * asked once, and the turns are those. last_only: the last message, which is the
 * assistant's, has to have its place, and turns before it that have none, or whose
 * text changes, are part of its prompt. `turns` has room for `count`. */
enum err chat_divide(const struct chat_template *template,
                     const struct chat_message *messages, size_t count,
                     bool last_only, struct chat_text *out,
                     struct chat_turn *turns, size_t *turn_count);
