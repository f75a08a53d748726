/* Messages, their text by the template, and its tokens.
 *
 * A template renders the whole conversation at every turn, and encoding that anew
 * would be right in letters and wrong in tokens: the model has written "Hello" as
 * "Hel" "lo", a tokenizer may find one token for it, and from there on nothing that
 * the model's slot holds would fit. So the text of the last turn with the answer
 * behind it is kept, beside the tokens that were really read and written. If what
 * is rendered now begins with that text to the byte, only what follows is encoded
 * and appended, and the slot reads just that. Else, as with templates that drop an
 * answer's thoughts later, all of it is encoded anew.
 *
 * Nothing is cut from a conversation that is too long for the context: what the
 * model would forget is for people to say (/reset). */
#include "src/generate/chat_talk.h"

#include <assert.h>
#include <fcntl.h>
#include <inttypes.h>
#include <jansson.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/base/lines.h"
#include "src/base/array.h"
#include "src/base/new.h"
#include "src/base/output.h"
#include "src/base/regular.h"
#include "src/text/unicode.h"

struct chat_talk {
    struct generate_engine *engine;
    struct chat_message *messages; /* [count] contents are owned */
    size_t count, capacity;
    struct token_list tokens; /* of the text, and of the answer behind it */
    struct chat_text
        text;   /* that was rendered last, and the answer behind it */
    bool exact; /* the tokens are the text's */
};

/* The content is copied, in valid UTF-8 as JSON and templates need it. */
static enum err talk_add(struct chat_talk *talk, const char *role,
                         const char *content, size_t bytes)
{
    struct buffer valid = { 0 };
    TRY(array_room(&talk->messages, &talk->capacity, talk->count + 1));
    enum err rc = buffer_reserve(&valid, bytes + 1);
    if (rc == ERR_OK)
        rc = unicode_repair((const uint8_t *)content, bytes, &valid);
    if (rc != ERR_OK) {
        buffer_free(&valid);
        return rc;
    }
    talk->messages[talk->count++] =
        (struct chat_message){ role, (const char *)valid.data, valid.bytes };
    return ERR_OK;
}

static void talk_drop(struct chat_talk *talk)
{
    assert(talk->count > 0);
    free((void *)talk->messages[--talk->count].content);
}

/* A system message that was given stays, as it stood at the beginning. */
enum err chat_talk_reset(struct chat_talk *talk)
{
    const char *system = talk->engine->args->system;
    while (talk->count > 0)
        talk_drop(talk);
    talk->tokens.count = 0;
    talk->text.bytes = 0;
    talk->exact = false;
    return system != NULL ? talk_add(talk, "system", system, strlen(system))
                          : ERR_OK;
}

enum err chat_talk_create(struct generate_engine *engine,
                          struct chat_talk **out)
{
    assert(engine->chat != NULL);
    struct chat_talk *talk = NULL;
    TRY(new_zeroed(&talk, 1));
    talk->engine = engine;
    enum err rc = chat_talk_reset(talk);
    return new_or_none(rc, talk, out, chat_talk_destroy);
}

void chat_talk_destroy(struct chat_talk *talk)
{
    if (talk == NULL)
        return;
    while (talk->count > 0)
        talk_drop(talk);
    free(talk->messages);
    free(talk->tokens.token);
    free(talk->text.text);
    free(talk);
}

/* Tokens of the text that was rendered, behind those of its beginning where
 * they are known. */
static enum err talk_encode(struct chat_talk *talk,
                            const struct chat_text *rendered)
{
    bool goes_on =
        talk->exact && talk->text.bytes <= rendered->bytes &&
        memcmp(talk->text.text, rendered->text, talk->text.bytes) == 0;
    size_t from = goes_on ? talk->text.bytes : 0;
    assert(from <= rendered->bytes);
    if (!goes_on)
        talk->tokens.count = 0;
    return generate_engine_encode(
        talk->engine, rendered->text + from, rendered->bytes - from,
        TOKENIZER_SPECIAL | (goes_on ? TOKENIZER_INSIDE : 0), &talk->tokens);
}

/* All or nothing: what cannot be said is taken back, so that the conversation is as
 * it was and goes on. */
enum err chat_talk_say(struct chat_talk *talk, const char *text, size_t bytes,
                       struct generate_prompt *prompt)
{
    int64_t context = talk->engine->context;
    assert(context > 0);
    struct chat_text rendered = { 0 };
    TRY(talk_add(talk, "user", text, bytes));
    enum err rc = chat_render(talk->engine->chat, talk->messages, talk->count,
                              true, &rendered);
    if (rc == ERR_OK)
        rc = talk_encode(talk, &rendered);
    if (rc == ERR_OK && (int64_t)talk->tokens.count >= context)
        rc = err_set(ERR_USAGE,
                     "the conversation has %zu tokens with this, and the "
                     "context has room for %" PRId64 ": say less, or /reset",
                     talk->tokens.count, context);
    if (rc == ERR_OK && talk->tokens.count == 0)
        rc = err_set(ERR_USAGE, "the conversation has no token: say something");
    if (rc != ERR_OK) {
        /* its tokens may be there in part: next time all are made anew */
        talk_drop(talk);
        talk->exact = false;
        free(rendered.text);
        return rc;
    }
    free(talk->text.text);
    talk->text = rendered;
    *prompt =
        (struct generate_prompt){ talk->tokens.token, talk->tokens.count };
    return ERR_OK;
}

/* What the model wrote, as tokens and as text. They no longer belong together where
 * a stop text was cut off the text, or a special token has none: then the next
 * turn encodes everything. */
enum err chat_talk_answer(struct chat_talk *talk,
                          const struct generate_result *result)
{
    assert(talk->count > 0 &&
           strcmp(talk->messages[talk->count - 1].role, "user") == 0);
    const struct tokenizer *tokenizer = talk->engine->tokenizer;
    struct chat_text *text = &talk->text;
    TRY(talk_add(talk, CHAT_ROLE_ASSISTANT, result->text, result->bytes));
    TRY(token_list_add(&talk->tokens, result->tokens, result->count));
    char *longer = realloc(text->text, text->bytes + result->bytes + 1);
    if (longer == NULL)
        return err_set(ERR_MEMORY, "no memory for an answer");
    memcpy(longer + text->bytes, result->text, result->bytes);
    text->text = longer;
    text->bytes += result->bytes;
    text->capacity = text->bytes + 1;
    /* tokens of a stop text, or without text, are not in it */
    talk->exact = result->end != GENERATE_STOP;
    for (size_t i = 0; i < result->count; i++)
        talk->exact =
            talk->exact && !tokenizer_is_special(tokenizer, result->tokens[i]);
    return ERR_OK;
}

/* What was said and has an answer with text, which alone can be learned from:
 * the messages to save, their number; 0: there is no answer. */
static size_t talk_answered(const struct chat_talk *talk, json_t *list)
{
    size_t count = 0, answers = 0;
    for (size_t m = 0; m < talk->count; m++) {
        const struct chat_message *message = &talk->messages[m];
        bool user = strcmp(message->role, "user") == 0;
        bool answer = strcmp(message->role, CHAT_ROLE_ASSISTANT) == 0;
        if ((user && (m + 1 == talk->count || message[1].bytes == 0)) ||
            (answer && message->bytes == 0))
            continue;
        json_array_append_new(list, json_pack("{ss ss%}", "role", message->role,
                                              "content", message->content,
                                              message->bytes));
        count++;
        answers += answer;
    }
    return answers > 0 ? count : 0;
}

/* One line, appended in one write: a file of conversations may be shared by
 * several talks, and a program that reads it sees whole ones. The file is opened
 * so that a pipe or terminal of that name is refused and never waited for. */
enum err chat_talk_save(const struct chat_talk *talk, const char *path)
{
    enum err rc = ERR_OK;
    int fd = -1;
    const struct generate_args *args = talk->engine->args;
    const char *const inputs[] = { args->model, args->tokenizer };
    char *text = NULL;
    json_t *list = json_array(), *line = NULL;
    size_t count = talk_answered(talk, list);
    if (count == 0)
        TRY_OUT(err_set(ERR_USAGE,
                        "there is nothing to save: no answer was given yet"));
    line = json_pack("{sO}", "messages", list);
    if (line == NULL || json_array_size(list) != count)
        TRY_OUT(err_set(ERR_MEMORY, "no memory for the conversation"));
    TRY_OUT(output_check(path, inputs, 2));
    TRY_OUT(regular_open_at(AT_FDCWD, path, O_RDWR | O_CREAT | O_APPEND,
                            REGULAR_FOLLOW, path, &fd));
    TRY_OUT(jsontext_make(line, 0, &text));
    TRY_OUT(lines_append(fd, path, text));
out:
    fsio_close(fd);
    json_decref(line);
    json_decref(list);
    free(text);
    return rc;
}
