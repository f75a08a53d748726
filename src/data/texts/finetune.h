/* Fine-tuning examples: a record of JSON lines to tokens and which of them are
 * to be learned. The rules are LLM Foundry's.
 *
 * A record has "prompt" and "response" (or "completion"), texts that are not
 * empty, or "messages", a list of at least two {"role", "content"}: the roles
 * are system, user, assistant and tool, none twice in a row, the last one the
 * assistant's, whose contents are not empty. Without a chat template a prompt
 * and its response are joined as they are (behind the token that begins a text,
 * where the tokenizer puts one), and messages are refused; with one, a prompt
 * is the user's message and the response the assistant's.
 *
 * A turn is a response, an assistant's message with what the template puts
 * behind it, and the prompt, all that comes before it since the last turn.
 * Prompt and response are encoded each by itself; special tokens that are
 * written out in a text are those tokens. Behind the last response comes the
 * token that ends a document, unless it ends with it. */
#pragma once

#include <jansson.h>
#include <stdbool.h>
#include <stdint.h>

#include "src/base/err.h"
#include "src/text/chat/chat.h"
#include "src/text/tokenizer/tokenizer.h"

/* What becomes of an example of more than seq_len tokens: its end is cut, it is
 * left out, or it is an error. */
#define FINETUNE_TOO_LONG_NAMES "truncate", "drop", "refuse"
enum finetune_too_long { FINETUNE_TRUNCATE, FINETUNE_DROP, FINETUNE_REFUSE };

/* No prompt is as long. */
#define FINETUNE_NO_PROMPTS INT64_MAX

struct finetune_rules {
    int64_t seq_len;        /* tokens of an example at most */
    bool all_responses;     /* all are learned, not the last one only */
    int64_t target_prompts; /* prompts of so many tokens are learned, too */
    enum finetune_too_long too_long;
    int32_t eos; /* ends a document; -1: the tokenizer's */
    /* "sharegpt", "alpaca", or which fields of a record have what, such as
     * "messages=conversations,role=from,content=value" or
     * "prompt=instruction+input,response=output": those alone are used, roles may
     * be called human and gpt, and where there is text in a second field of the
     * prompt it follows behind an empty line; NULL: as above */
    const char *fields;
};

/* The fields of a record that are looked at, NULL where there is none. */
enum finetune_field {
    FINETUNE_MESSAGES,
    FINETUNE_PROMPT,
    FINETUNE_RESPONSE,
    FINETUNE_COMPLETION,
    FINETUNE_INPUT, /* of the prompt, behind it */
    FINETUNE_RECORD_FIELDS,
    FINETUNE_ROLE = FINETUNE_RECORD_FIELDS, /* of a message */
    FINETUNE_CONTENT,
    FINETUNE_FIELDS
};

struct finetune;

/* Lends tokenizer and template until it is destroyed. template NULL: prompts
 * and responses only. ERR_USAGE where the tokenizer names no token that ends a
 * document, and for fields that there can't be. */
enum err finetune_create(const struct finetune_rules *rules,
                         const struct tokenizer *tokenizer,
                         const struct chat_template *template,
                         struct finetune **out);
void finetune_destroy(struct finetune *finetune);

enum finetune_fate {
    FINETUNE_KEPT,
    FINETUNE_CUT,     /* kept, without its end */
    FINETUNE_LONG,    /* left out: too long */
    FINETUNE_NOTHING, /* left out: nothing in it is to be learned */
};

/* Lent until the next record. */
struct finetune_example {
    enum finetune_fate fate;
    const int32_t *tokens;
    const uint8_t *mask; /* 1: the token is to be predicted */
    int64_t count;
};

/* ERR_DATA names the field, without the place. */
enum err finetune_read(struct finetune *finetune, const json_t *record,
                       struct finetune_example *out);

const char *const *finetune_fields(const struct finetune *finetune);

/* Fields that records have and that are not used, "id, source"; "": none. */
const char *finetune_unused(const struct finetune *finetune);
