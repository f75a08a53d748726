/* The templates that there are, and conversations divided into turns.
 *
 * A model of conversations has learned texts of one shape: who speaks, what is
 * said, and between them tokens that no text has. Prompted in another shape it
 * answers worse and nobody hears of it, so the shape travels with the model, as
 * a program in Jinja's language: "chat_template" of a tokenizer_config.json, or
 * a file chat_template.jinja. Most could be a table of what stands before and
 * behind a message; but published ones also trim, count, look for the first
 * system message and raise errors, so they are run as they are
 * (https://huggingface.co/docs/transformers/chat_templating). That takes the
 * stages of any interpreter: chat_lex.c makes words, chat_parse.c a tree of
 * them, chat_render.c and chat_eval.c walk the tree.
 *
 * Learning needs more than the text: the loss is taken where the assistant
 * speaks, and nowhere else. There are two ways to know where that is. A
 * template can say so itself by {% generation %} blocks, which are no part of
 * Jinja but the Hugging Face library's addition for this purpose. Others are
 * asked: for the text of the messages before an answer, with what begins the
 * assistant's turn (add_generation_prompt), and for the text with the answer.
 * What the second has beyond the first is what was said. That takes two
 * renderings for each answer, and it needs templates that only ever append: one
 * that drops the reasoning of earlier answers changes text that was there, and
 * has no such place for any answer but the last. */
#include "src/text/chat/chat.h"

#include <assert.h>
#include <jansson.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/fsio.h"
#include "src/base/globs.h"
#include "src/base/new.h"
#include "src/base/jsontext.h"
#include "src/text/chat/chat_parse.h"
#include "src/text/chat/chat_impl.h"

const char *const chat_roles[] = { "system", "user", CHAT_ROLE_ASSISTANT,
                                   "tool", NULL };

static const struct {
    const char *name, *text;
} chat_built_in[] = {
    /* without a line end behind the last message, so that its end is the last
     * thing that is learned */
    { "chatml",
      "{% for message in messages %}"
      "{{ '' if loop.first else '\\n' }}<|im_start|>{{ message.role }}"
      "{{ '\\n' + message.content }}<|im_end|>"
      "{% endfor %}"
      "{% if add_generation_prompt %}"
      "{{ '\\n' if messages else '' }}<|im_start|>{{ 'assistant\\n' }}"
      "{% endif %}" },
    { "llama3", "<|begin_of_text|>"
                "{% for message in messages %}"
                "<|start_header_id|>{{ message.role }}<|end_header_id|>"
                "{{ '\\n\\n' + message.content | trim }}<|eot_id|>"
                "{% endfor %}"
                "{% if add_generation_prompt %}"
                "<|start_header_id|>assistant<|end_header_id|>{{ '\\n\\n' }}"
                "{% endif %}" },
    { "none",
      "{% for message in messages %}{{ message.content }}{% endfor %}" },
};
#define CHAT_BUILT_IN (sizeof chat_built_in / sizeof *chat_built_in)

/* A file's whole text, to be freed. */
static enum err chat_read_file(const char *path, char **text, size_t *bytes)
{
    if (!fsio_exists(path))
        return err_set(ERR_USAGE,
                       "no chat template '%s': neither a file nor one of "
                       "chatml, llama3, none",
                       path);
    TRY(fsio_read_file(path, CHAT_LEX_BYTES_MAX, text, bytes));
    return strlen(*text) == *bytes
               ? ERR_OK
               : err_set(ERR_DATA,
                         "%s: a NUL byte at %zu is in no chat template", path,
                         strlen(*text));
}

/* A JSON object's "chat_template" takes the text's place. */
static enum err chat_unpack_json(const char *path, char **text, size_t *bytes)
{
    enum err rc = ERR_OK;
    json_error_t error;
    /* model_max_length may be 10^30, which no whole number here is */
    json_t *root =
        jsontext_load(*text, *bytes,
                      JSON_REJECT_DUPLICATES | JSON_DECODE_INT_AS_REAL, &error);
    const json_t *found = json_object_get(root, "chat_template");
    if (root == NULL)
        rc = err_set(jsontext_wrong(&error), "%s: line %d: %s", path,
                     error.line, error.text);
    else if (!json_is_string(found))
        rc = err_set(ERR_DATA, "%s: no text named \"chat_template\"", path);
    if (rc == ERR_OK) {
        *bytes = json_string_length(found);
        memmove(*text, json_string_value(found), *bytes);
    }
    json_decref(root);
    return rc;
}

/* Markers, "<|...|>", stand in the text or in strings of the template. Whatever
 * the tokenizer does not know as one token would be learned as letters, "<",
 * "|", "im", ..., which the model has never seen begin a message. */
static enum err chat_check_markers(const struct chat_template *template,
                                   const struct tokenizer *tokenizer)
{
    const struct chat_lex *lex = &template->tree.lex;
    char marker[64];
    for (size_t w = 0; w < lex->count; w++) {
        const char *at = lex->word[w].text, *end = at + lex->word[w].bytes;
        if (lex->word[w].kind != CHAT_LEX_DATA &&
            lex->word[w].kind != CHAT_LEX_STRING)
            continue;
        while ((at = memmem(at, (size_t)(end - at), "<|", 2)) != NULL) {
            size_t left = (size_t)(end - at);
            const char *last = memmem(
                at, left < sizeof marker ? left : sizeof marker - 1, "|>", 2);
            size_t bytes = last != NULL ? (size_t)(last + 2 - at) : 0;
            /* what has blanks or brackets inside is no marker */
            for (size_t i = 2; i + 2 < bytes; i++)
                if (strchr(" \n<>{}", at[i]) != NULL)
                    bytes = 0;
            if (bytes > 0) {
                snprintf(marker, sizeof marker, "%.*s", (int)bytes, at);
                if (tokenizer_find(tokenizer, marker) < 0)
                    return err_set(ERR_DATA,
                                   "chat template %s: its marker %s is no "
                                   "token of the tokenizer %s; choose another "
                                   "template or a tokenizer that has it",
                                   template->name, marker,
                                   tokenizer_name(tokenizer));
            }
            at += 2;
        }
    }
    return ERR_OK;
}

static enum err chat_special(const struct tokenizer *tokenizer, int32_t token,
                             struct chat_value *out)
{
    const uint8_t *text = NULL;
    size_t bytes = 0;
    if (token < 0)
        return ERR_OK;
    TRY(tokenizer_decode(tokenizer, token, &text, &bytes));
    *out = chat_value_string((const char *)text, bytes);
    return ERR_OK;
}

static enum err chat_fill(struct chat_template *template, const char *name,
                          const char *text, size_t bytes,
                          const struct tokenizer *tokenizer)
{
    TRY(new_text(&template->name, name));
    TRY(err_prefix(chat_parse_read(text, bytes, &template->tree),
                   "chat template %s", name));
    TRY(chat_special(tokenizer, tokenizer_bos(tokenizer), &template->bos));
    TRY(chat_special(tokenizer, tokenizer_eos(tokenizer), &template->eos));
    if (tokenizer_file(tokenizer, &bytes) == NULL)
        return ERR_OK;
    return chat_check_markers(template, tokenizer);
}

enum err chat_template_create_text(const char *name, const char *text,
                                   size_t bytes,
                                   const struct tokenizer *tokenizer,
                                   struct chat_template **out)
{
    assert(text != NULL && tokenizer != NULL && out != NULL);
    struct chat_template *template = NULL;
    TRY(new_zeroed(&template, 1));
    enum err rc = chat_fill(template, name, text, bytes, tokenizer);
    return new_or_none(rc, template, out, chat_template_destroy);
}

enum err chat_template_create(const char *name,
                              const struct tokenizer *tokenizer,
                              struct chat_template **out)
{
    assert(name != NULL && out != NULL);
    enum err rc = ERR_OK;
    char *text = NULL;
    size_t bytes = 0;
    for (size_t b = 0; b < CHAT_BUILT_IN; b++)
        if (strcmp(name, chat_built_in[b].name) == 0)
            return chat_template_create_text(name, chat_built_in[b].text,
                                             strlen(chat_built_in[b].text),
                                             tokenizer, out);
    TRY_OUT(chat_read_file(name, &text, &bytes));
    if (globs_match("?*.json", name))
        TRY_OUT(chat_unpack_json(name, &text, &bytes));
    TRY_OUT(chat_template_create_text(name, text, bytes, tokenizer, out));
out:
    free(text);
    return rc;
}

void chat_template_destroy(struct chat_template *template)
{
    if (template == NULL)
        return;
    chat_parse_release(&template->tree);
    free(template->name);
    free(template);
}

enum err chat_render(const struct chat_template *template,
                     const struct chat_message *messages, size_t count,
                     bool add_generation_prompt, struct chat_text *out)
{
    assert(template != NULL && (messages != NULL || count == 0));
    struct chat_memory memory = { 0 };
    return chat_render_turns(template, messages, count, add_generation_prompt,
                             &memory, out, NULL, NULL);
}

static bool chat_begins(const struct chat_text *text,
                        const struct chat_text *beginning)
{
    return beginning->bytes <= text->bytes &&
           (beginning->bytes == 0 ||
            memcmp(text->text, beginning->text, beginning->bytes) == 0);
}

/* The text so far and the next one change places, so that three texts, which
 * keep their memory, do for a conversation of any length. */
enum err chat_divide(const struct chat_template *template,
                     const struct chat_message *messages, size_t count,
                     bool last_only, struct chat_text *out,
                     struct chat_turn *turns, size_t *turn_count)
{
    assert(out != NULL && turns != NULL && turn_count != NULL);
    enum err rc = ERR_OK;
    struct chat_memory memory = { 0 };
    struct chat_text prompt = { 0 }, so_far = { 0 };
    *turn_count = 0;
    if (template->tree.generation) {
        TRY(chat_render_turns(template, messages, count, false, &memory, out,
                              turns, turn_count));
        return *turn_count > 0
                   ? ERR_OK
                   : err_set(ERR_DATA,
                             "chat template %s: no generation block is reached",
                             template->name);
    }
    for (size_t m = 0; m < count; m++) {
        if (strcmp(messages[m].role, CHAT_ROLE_ASSISTANT) != 0)
            continue;
        TRY_OUT(chat_render_turns(template, messages, m, true, &memory, &prompt,
                                  NULL, NULL));
        TRY_OUT(chat_render_turns(template, messages, m + 1, false, &memory,
                                  out, NULL, NULL));
        bool goes_on = chat_begins(&prompt, &so_far);
        bool apart = chat_begins(out, &prompt);
        if (!goes_on || !apart)
            *turn_count = 0; /* what came before is part of the prompt */
        if (last_only ? !apart && m + 1 == count : !goes_on || !apart) {
            rc =
                err_set(ERR_DATA,
                        "chat template %s: with message %zu the text before "
                        "it changes, or does not go on as the model is "
                        "prompted, so what the assistant said has no place of "
                        "its own; choose another template, or mark it by "
                        "{%% generation %%}%s",
                        template->name, m,
                        apart ? ", or let only last responses be learned" : "");
            goto out;
        }
        if (apart)
            turns[(*turn_count)++] =
                (struct chat_turn){ prompt.bytes, out->bytes };
        struct chat_text other = so_far;
        so_far = *out;
        *out = other;
    }
    struct chat_text other = so_far;
    so_far = *out;
    *out = other;
out:
    free(prompt.text);
    free(so_far.text);
    return rc;
}
