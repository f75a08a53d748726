/* Reads records, has them rendered and encoded, and says what is learned.
 *
 * A record is a conversation, whichever form it has: a prompt and a response
 * are one of two messages. With a chat template each beginning of it is
 * rendered, and where one goes on from the one before is where a turn's prompt
 * and response part (chat_divide()): no template is asked how it marks an
 * answer. Each part is encoded by itself, so that no token spans the border
 * between what is given and what is learned, and a mask of 0 and 1 beside the
 * tokens says which is which. Without a template the two texts are joined as
 * they are.
 *
 * A prompt bears loss if it has target_prompts tokens or more; of the responses
 * the last one does, or all. The first token never does, for nothing predicts
 * it. What is too long loses its end, and with that maybe all that was to be
 * learned: then the example is left out, and counted. */
#include "src/data/texts/finetune.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/data/texts/jsonl.h"

/* Characters of a field or role that are quoted in a message. */
#define FINETUNE_SHOWN 40

struct finetune {
    struct finetune_rules rules;
    const struct tokenizer *tokenizer;
    const struct chat_template *template;
    struct tokenizer_encoder *encoder;
    int32_t eos, bos; /* bos -1: none is put before a prompt */
    struct chat_message *messages;
    struct chat_turn *turns;
    size_t messages_capacity, turns_capacity;
    struct chat_text text;
    struct token_list tokens;
    uint8_t *mask;
    size_t mask_capacity;
    char unused[160];
    const char *field[FINETUNE_FIELDS]; /* in `fields`; NULL: there is none */
    char *fields;
    struct buffer prompt; /* of two fields */
};

const char *const *finetune_fields(const struct finetune *finetune)
{
    return finetune->field;
}

static const char *const finetune_keys[FINETUNE_FIELDS] = {
    [FINETUNE_MESSAGES] = "messages",
    [FINETUNE_PROMPT] = "prompt",
    [FINETUNE_RESPONSE] = "response",
    [FINETUNE_COMPLETION] = "completion",
    [FINETUNE_INPUT] = "",
    [FINETUNE_ROLE] = "role",
    [FINETUNE_CONTENT] = "content",
};

/* "messages=conversations,role=from" */
static enum err finetune_set_fields(struct finetune *finetune,
                                    const char *fields)
{
    char *next = NULL;
    const char **field = finetune->field;
    memcpy(field, finetune_keys, sizeof finetune_keys);
    field[FINETUNE_INPUT] = NULL;
    if (fields == NULL)
        return ERR_OK;
    for (int f = 0; f < FINETUNE_RECORD_FIELDS; f++)
        field[f] = NULL;
    TRY(new_text(&finetune->fields,
                 strcmp(fields, "sharegpt") == 0
                     ? "messages=conversations,role=from,content=value"
                 : strcmp(fields, "alpaca") == 0
                     ? "prompt=instruction+input,response=output"
                     : fields));
    for (char *part = strtok_r(finetune->fields, ",", &next); part != NULL;
         part = strtok_r(NULL, ",", &next)) {
        char *name = strchr(part, '='), *second = strchr(part, '+');
        int f = 0;
        if (name != NULL)
            *name++ = '\0';
        while (f < FINETUNE_FIELDS && strcmp(finetune_keys[f], part) != 0)
            f++;
        if (f == FINETUNE_FIELDS || part[0] == '\0')
            return err_set(ERR_USAGE,
                           "--fields: '%s' is none of messages, role, content, "
                           "prompt, response and completion",
                           part);
        if (f == FINETUNE_PROMPT && second != NULL) {
            *second++ = '\0';
            field[FINETUNE_INPUT] = second;
        }
        field[f] = name != NULL ? name : part;
    }
    return ERR_OK;
}

/* Whether the tokenizer begins a text with its bos token. */
static enum err finetune_find_bos(struct finetune *finetune)
{
    /* only encoding a text tells: the tokenizer's own template may add it */
    static const uint8_t any[] = { 'a' };
    int32_t bos = tokenizer_bos(finetune->tokenizer);
    finetune->bos = -1;
    TRY(tokenizer_encode(finetune->encoder, any, 1, TOKENIZER_TEMPLATE,
                         &finetune->tokens));
    if (bos >= 0 && finetune->tokens.count > 0 &&
        finetune->tokens.token[0] == bos)
        finetune->bos = bos;
    finetune->tokens.count = 0;
    return ERR_OK;
}

enum err finetune_create(const struct finetune_rules *rules,
                         const struct tokenizer *tokenizer,
                         const struct chat_template *template,
                         struct finetune **out)
{
    assert(rules->seq_len > 1 && rules->target_prompts >= 0);
    enum err rc = ERR_OK;
    struct finetune *finetune = NULL;
    TRY(new_zeroed(&finetune, 1));
    finetune->rules = *rules;
    finetune->tokenizer = tokenizer;
    finetune->template = template;
    TRY_OUT(finetune_set_fields(finetune, rules->fields));
    finetune->eos = rules->eos >= 0 ? rules->eos : tokenizer_eos(tokenizer);
    if (finetune->eos < 0)
        TRY_OUT(err_set(ERR_USAGE,
                        "the tokenizer %s names no token that ends a text, so "
                        "that no answer would end: give --eos-id N, or put a "
                        "tokenizer_config.json with \"eos_token\" beside it",
                        tokenizer_name(tokenizer)));
    TRY_OUT(tokenizer_encoder_create(tokenizer, &finetune->encoder));
    TRY_OUT(finetune_find_bos(finetune));
out:
    return new_or_none(rc, finetune, out, finetune_destroy);
}

void finetune_destroy(struct finetune *finetune)
{
    if (finetune == NULL)
        return;
    tokenizer_encoder_destroy(finetune->encoder);
    free(finetune->messages);
    free(finetune->turns);
    free(finetune->text.text);
    free(finetune->tokens.token);
    free(finetune->mask);
    free(finetune->fields);
    buffer_free(&finetune->prompt);
    free(finetune);
}

const char *finetune_unused(const struct finetune *finetune)
{
    return finetune->unused;
}

/* Control characters would reach a terminal. */
static void finetune_note_unused(struct finetune *finetune, const char *name)
{
    char key[sizeof finetune->unused];
    char *list = finetune->unused;
    snprintf(key, sizeof key, "%s", name);
    for (char *c = key; *c != '\0'; c++)
        if ((unsigned char)*c < ' ' || *c == 0x7f)
            *c = '?';
    if (key[0] == '\0') /* a search for nothing never ends */
        memcpy(key, "''", 3);
    size_t used = strlen(list), length = strlen(key);
    for (char *at = list; (at = strstr(at, key)) != NULL; at += length)
        if ((at == list || at[-1] == ' ') &&
            (at[length] == ',' || at[length] == '\0'))
            return;
    if (used + length + 8 < sizeof finetune->unused) {
        memcpy(list + used, ", ", 2);
        memcpy(list + (used > 0 ? used + 2 : 0), key, length + 1);
    } else if (used > 3 && strcmp(list + used - 3, "...") != 0)
        memcpy(list + used, ", ...", 6);
}

/* Room for `count` messages, and as many turns. */
static enum err finetune_room(struct finetune *finetune, size_t count)
{
    TRY(array_room(&finetune->messages, &finetune->messages_capacity, count));
    return array_room(&finetune->turns, &finetune->turns_capacity, count);
}

static const char *const finetune_type_names[] = {
    [JSON_OBJECT] = "an object", [JSON_ARRAY] = "a list",
    [JSON_STRING] = "a text",    [JSON_INTEGER] = "a number",
    [JSON_REAL] = "a number",    [JSON_TRUE] = "true",
    [JSON_FALSE] = "false",      [JSON_NULL] = "null",
};

static enum err finetune_text(const json_t *value, const char *field,
                              struct chat_message *out)
{
    if (value == NULL)
        return err_set(ERR_DATA, "'%s' is missing", field);
    if (!json_is_string(value))
        return err_set(ERR_DATA, "'%s' has to be a text, not %s", field,
                       finetune_type_names[json_typeof(value)]);
    out->content = json_string_value(value);
    out->bytes = json_string_length(value);
    return ERR_OK;
}

/* "role" and "content", and nothing else. */
static enum err finetune_message(const struct finetune *finetune,
                                 const json_t *value, size_t m,
                                 struct chat_message *out)
{
    char field[128];
    const char *key, *const *names = finetune->field;
    const char *messages = names[FINETUNE_MESSAGES];
    json_t *member;
    struct chat_message role;
    size_t r = 0;
    snprintf(field, sizeof field, "%.40s[%zu]", messages, m);
    if (!json_is_object(value))
        return err_set(ERR_DATA, "'%s' has to be an object, not %s", field,
                       finetune_type_names[json_typeof(value)]);
    json_object_foreach((json_t *)value, key, member)
    {
        if (strcmp(key, names[FINETUNE_ROLE]) != 0 &&
            strcmp(key, names[FINETUNE_CONTENT]) != 0)
            return err_set(ERR_DATA,
                           "'%s.%.*s' is not known: a message has '%s' and "
                           "'%s'",
                           field, FINETUNE_SHOWN, key, names[FINETUNE_ROLE],
                           names[FINETUNE_CONTENT]);
    }
    snprintf(field, sizeof field, "%.40s[%zu].%.40s", messages, m,
             names[FINETUNE_ROLE]);
    TRY(finetune_text(json_object_get(value, names[FINETUNE_ROLE]), field,
                      &role));
    if (finetune->fields != NULL && strcmp(role.content, "human") == 0)
        role.content = "user";
    if (finetune->fields != NULL && strcmp(role.content, "gpt") == 0)
        role.content = CHAT_ROLE_ASSISTANT;
    while (chat_roles[r] != NULL && strcmp(chat_roles[r], role.content) != 0)
        r++;
    if (chat_roles[r] == NULL)
        return err_set(ERR_DATA,
                       "'%s' is '%.*s'; it has to be system, user, assistant "
                       "or tool",
                       field, FINETUNE_SHOWN, role.content);
    out->role = chat_roles[r];
    snprintf(field, sizeof field, "%.40s[%zu].%.40s", messages, m,
             names[FINETUNE_CONTENT]);
    TRY(finetune_text(json_object_get(value, names[FINETUNE_CONTENT]), field,
                      out));
    if (out->bytes == 0 && strcmp(out->role, CHAT_ROLE_ASSISTANT) == 0)
        return err_set(ERR_DATA, "'%s' is empty, and it is the assistant's",
                       field);
    return ERR_OK;
}

static enum err finetune_messages(struct finetune *finetune, const json_t *list,
                                  size_t *count)
{
    const char *name = finetune->field[FINETUNE_MESSAGES];
    if (!json_is_array(list))
        return err_set(ERR_DATA, "'%s' has to be a list, not %s", name,
                       finetune_type_names[json_typeof(list)]);
    *count = json_array_size(list);
    if (*count < 2)
        return err_set(ERR_DATA,
                       "'%s' has %zu of them; it takes a "
                       "question and an answer at least",
                       name, *count);
    TRY(finetune_room(finetune, *count));
    struct chat_message *messages = finetune->messages;
    for (size_t m = 0; m < *count; m++) {
        TRY(finetune_message(finetune, json_array_get(list, m), m,
                             &messages[m]));
        /* roles are the table's pointers */
        if (m > 0 && messages[m].role == messages[m - 1].role)
            return err_set(ERR_DATA, "'%s[%zu].%s' is '%s' twice in a row",
                           name, m, finetune->field[FINETUNE_ROLE],
                           messages[m].role);
    }
    if (strcmp(messages[*count - 1].role, CHAT_ROLE_ASSISTANT) != 0)
        return err_set(ERR_DATA,
                       "'%s[%zu].%s', the last one, is '%s'; it has to "
                       "be the assistant, whose answers are learned",
                       name, *count - 1, finetune->field[FINETUNE_ROLE],
                       messages[*count - 1].role);
    return ERR_OK;
}

/* The second field of a prompt, if there is anything in it. */
static enum err finetune_join(struct finetune *finetune, const json_t *input,
                              struct chat_message *prompt)
{
    struct chat_message more;
    struct buffer *both = &finetune->prompt;
    TRY(finetune_text(input, finetune->field[FINETUNE_INPUT], &more));
    if (more.bytes == 0)
        return ERR_OK;
    both->bytes = 0;
    TRY(buffer_add(both, prompt->content, prompt->bytes));
    TRY(buffer_add(both, "\n\n", 2));
    TRY(buffer_add(both, more.content, more.bytes));
    prompt->content = (const char *)both->data;
    prompt->bytes = both->bytes;
    return ERR_OK;
}

static enum err finetune_pair(struct finetune *finetune, const json_t *record,
                              size_t *count)
{
    const char *const *names = finetune->field;
    const char *completion = names[FINETUNE_COMPLETION];
    const char *response =
        completion != NULL && json_object_get(record, completion) != NULL
            ? completion
            : names[FINETUNE_RESPONSE];
    const json_t *input = json_object_get(record, names[FINETUNE_INPUT]);
    if (names[FINETUNE_PROMPT] == NULL || response == NULL)
        return err_set(ERR_USAGE, "--fields names no prompt, or no response");
    TRY(finetune_room(finetune, 2));
    struct chat_message *messages = finetune->messages;
    messages[0].role = "user";
    messages[1].role = CHAT_ROLE_ASSISTANT;
    TRY(finetune_text(json_object_get(record, names[FINETUNE_PROMPT]),
                      names[FINETUNE_PROMPT], &messages[0]));
    TRY(finetune_text(json_object_get(record, response), response,
                      &messages[1]));
    if (messages[0].bytes == 0 || messages[1].bytes == 0)
        return err_set(ERR_DATA, "'%s' is empty",
                       messages[0].bytes == 0 ? names[FINETUNE_PROMPT]
                                              : response);
    if (input != NULL && !json_is_null(input))
        TRY(finetune_join(finetune, input, &messages[0]));
    *count = 2;
    return ERR_OK;
}

/* With how to make records of the commonest other forms. */
static enum err finetune_no_fields(const struct finetune *finetune,
                                   const json_t *record)
{
    char fields[160];
    const char *how = "";
    jsonl_fields(record, fields, sizeof fields);
    if (json_object_get(record, "conversations") != NULL)
        how = "; of ShareGPT's: --fields sharegpt";
    else if (json_object_get(record, "instruction") != NULL)
        how = "; of Alpaca's: --fields alpaca";
    return err_set(ERR_DATA,
                   "there is neither 'prompt' with 'response' or 'completion' "
                   "nor 'messages'%s, but: %s%s",
                   finetune->fields != NULL ? ", as --fields calls them" : "",
                   fields, how);
}

/* The record's messages; which of the two forms it has, is in its fields. */
static enum err finetune_parse(struct finetune *finetune, const json_t *record,
                               size_t *count)
{
    const char *const *names = finetune->field;
    bool has[FINETUNE_RECORD_FIELDS] = { false };
    const char *key;
    json_t *value;
    json_object_foreach((json_t *)record, key, value)
    {
        size_t f = 0;
        while (f < FINETUNE_RECORD_FIELDS &&
               (names[f] == NULL || strcmp(names[f], key) != 0))
            f++;
        if (f < FINETUNE_RECORD_FIELDS)
            has[f] = true;
        else
            finetune_note_unused(finetune, key);
    }
    if (has[0] && (has[1] || has[2] || has[3]))
        return err_set(ERR_DATA,
                       "'messages' and '%s' are in one record; --fields says "
                       "which to use",
                       has[1]   ? "prompt"
                       : has[2] ? "response"
                                : "completion");
    if (has[2] && has[3])
        return err_set(ERR_DATA, "'response' and 'completion' are in one "
                                 "record");
    if (has[0] && finetune->template == NULL)
        return err_set(ERR_DATA, "'messages' need a chat template: use --chat "
                                 "in place of --prompts");
    if (has[0])
        return finetune_messages(
            finetune, json_object_get(record, names[FINETUNE_MESSAGES]), count);
    if (!has[1] && !has[2] && !has[3])
        return finetune_no_fields(finetune, record);
    return finetune_pair(finetune, record, count);
}

/* One part of a turn: its tokens, and whether they are learned. */
static enum err finetune_add(struct finetune *finetune, const char *text,
                             size_t bytes, bool prompt, bool last)
{
    struct token_list *tokens = &finetune->tokens;
    const struct finetune_rules *rules = &finetune->rules;
    size_t first = tokens->count;
    if (prompt && finetune->template == NULL && finetune->bos >= 0)
        TRY(token_list_add(tokens, &finetune->bos, 1));
    TRY(tokenizer_encode(finetune->encoder, (const uint8_t *)text, bytes,
                         TOKENIZER_SPECIAL, tokens));
    /* the model has to learn where to stop; a template may have said so */
    if (!prompt && last &&
        (tokens->count == first ||
         tokens->token[tokens->count - 1] != finetune->eos))
        TRY(token_list_add(tokens, &finetune->eos, 1));
    size_t count = tokens->count - first;
    /* the rule of LLM Foundry's target_prompts and target_responses */
    bool learned = prompt ? (int64_t)count >= rules->target_prompts
                          : last || rules->all_responses;
    TRY(array_room(&finetune->mask, &finetune->mask_capacity, tokens->count));
    if (count > 0)
        memset(finetune->mask + first, learned, count);
    return ERR_OK;
}

static enum err finetune_encode(struct finetune *finetune, size_t count)
{
    const struct chat_message *messages = finetune->messages;
    size_t turns = 0, done = 0;
    finetune->tokens.count = 0;
    if (finetune->template == NULL) {
        assert(count == 2);
        TRY(finetune_add(finetune, messages[0].content, messages[0].bytes, true,
                         true));
        return finetune_add(finetune, messages[1].content, messages[1].bytes,
                            false, true);
    }
    bool last_only = !finetune->rules.all_responses &&
                     finetune->rules.target_prompts == FINETUNE_NO_PROMPTS;
    TRY(chat_divide(finetune->template, messages, count, last_only,
                    &finetune->text, finetune->turns, &turns));
    for (size_t t = 0; t < turns; t++) {
        const struct chat_turn *turn = &finetune->turns[t];
        const char *text = finetune->text.text;
        bool last = t + 1 == turns;
        TRY(finetune_add(finetune, text + done, turn->prompt - done, true,
                         last));
        TRY(finetune_add(finetune, text + turn->prompt,
                         turn->response - turn->prompt, false, last));
        done = turn->response;
    }
    return ERR_OK;
}

enum err finetune_read(struct finetune *finetune, const json_t *record,
                       struct finetune_example *out)
{
    assert(record != NULL && out != NULL);
    const struct finetune_rules *rules = &finetune->rules;
    size_t messages = 0;
    TRY(finetune_parse(finetune, record, &messages));
    TRY(finetune_encode(finetune, messages));
    int64_t count = (int64_t)finetune->tokens.count;
    bool cut = count > rules->seq_len, learned = false;
    if (cut && rules->too_long == FINETUNE_REFUSE)
        return err_set(ERR_DATA,
                       "the example has %lld tokens, more than --seq-len %lld; "
                       "raise it, or say --too-long truncate or drop",
                       (long long)count, (long long)rules->seq_len);
    *out = (struct finetune_example){
        .fate = cut ? FINETUNE_CUT : FINETUNE_KEPT,
        .tokens = finetune->tokens.token,
        .mask = finetune->mask,
        .count = cut ? rules->seq_len : count,
    };
    /* nothing predicts the first token */
    if (count > 0)
        finetune->mask[0] = 0;
    /* is anything left to learn of what is kept? */
    for (int64_t t = 1; t < out->count && !learned; t++)
        learned = finetune->mask[t] != 0;
    if (cut && rules->too_long == FINETUNE_DROP)
        out->fate = FINETUNE_LONG;
    else if (!learned)
        out->fate = FINETUNE_NOTHING;
    return ERR_OK;
}
