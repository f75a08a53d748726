/* Reads prompts and makes tokens of them, all before the first is continued: the
 * longest decides the memory of a slot, and a mistake in the last line is told
 * before hours of work. Tokens of all lie in one list that moves while it grows;
 * pointers into it are made at the end. */
#include "src/generate/generate_texts.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/array.h"
#include "src/base/new.h"
#include "src/data/texts/inputs.h"

/* Nobody waits for so many, and numbers of them stay small. */
#define PROMPTS_MAX 10000000

static enum err prompts_room(struct generate_prompts *prompts)
{
    if (prompts->count < prompts->capacity)
        return ERR_OK;
    if (prompts->count == PROMPTS_MAX)
        return err_set(ERR_USAGE, "more than %d prompts", PROMPTS_MAX);
    size_t room = prompts->capacity;
    TRY(array_room(&prompts->texts, &room, prompts->count + 1));
    return array_room(&prompts->first, &prompts->capacity, prompts->count + 1);
}

static enum err encode_chat(struct generate_engine *engine,
                            const struct buffer *text, struct token_list *out)
{
    const char *system = engine->args->system;
    struct chat_text rendered = { 0 };
    const struct chat_message talk[] = {
        { "system", system, system != NULL ? strlen(system) : 0 },
        { "user", (const char *)text->data, text->bytes },
    };
    int first = system == NULL;
    enum err rc = chat_render(engine->chat, talk + first, 2 - (size_t)first,
                              true, &rendered);
    if (rc == ERR_OK)
        rc = generate_engine_encode(engine, rendered.text, rendered.bytes,
                                    TOKENIZER_SPECIAL, out);
    free(rendered.text);
    return rc;
}

/* An empty text can be continued where a token begins texts. */
static enum err encode_text(struct generate_engine *engine,
                            const struct buffer *text, struct token_list *out)
{
    size_t before = out->count;
    int32_t bos = tokenizer_bos(engine->tokenizer);
    TRY(generate_engine_encode(engine, (const char *)text->data, text->bytes,
                               TOKENIZER_SPECIAL | TOKENIZER_TEMPLATE, out));
    if (out->count > before)
        return ERR_OK;
    if (bos < 0)
        return err_set(ERR_USAGE, "an empty prompt: the tokenizer names no "
                                  "token that begins a text, so nothing can "
                                  "follow it");
    return token_list_add(out, &bos, 1);
}

/* A prompt that fills the context is still fine: one token can follow, for its
 * logits are there when the prompt is. */
static enum err prompts_add(struct generate_engine *engine,
                            struct generate_prompts *prompts, const char *text,
                            size_t bytes)
{
    TRY(prompts_room(prompts));
    struct buffer *kept = &prompts->texts[prompts->count];
    *kept = (struct buffer){ .bytes = 0 };
    prompts->first[prompts->count] = prompts->tokens.count;
    prompts->count++;
    TRY(buffer_reserve(kept, bytes + 1));
    TRY(buffer_add(kept, text, bytes));
    TRY(engine->chat != NULL ? encode_chat(engine, kept, &prompts->tokens)
                             : encode_text(engine, kept, &prompts->tokens));
    size_t count = prompts->tokens.count - prompts->first[prompts->count - 1];
    assert(prompts->first[prompts->count - 1] <= prompts->tokens.count);
    if (count > (size_t)engine->context)
        return err_set(ERR_USAGE,
                       "the prompt has %zu tokens, and the context of the "
                       "model %" PRId64,
                       count, engine->context);
    if (count > prompts->tokens_max)
        prompts->tokens_max = count;
    return ERR_OK;
}

struct prompts_taking {
    struct generate_engine *engine;
    struct generate_prompts *prompts;
};

static enum err prompts_take(void *arg, const char *text, size_t bytes)
{
    struct prompts_taking *taking = arg;
    return prompts_add(taking->engine, taking->prompts, text, bytes);
}

enum err generate_prompts_read(struct generate_engine *engine,
                               struct generate_prompts *prompts)
{
    assert(prompts->count == 0);
    const struct generate_args *args = engine->args;
    struct prompts_taking taking = { engine, prompts };
    if (args->prompt != NULL)
        TRY(prompts_add(engine, prompts, args->prompt, strlen(args->prompt)));
    else
        TRY(prompt_file_read(args->prompts, prompts_take, &taking));
    TRY(new_zeroed(&prompts->list, prompts->count));
    for (size_t p = 0; p < prompts->count; p++) {
        size_t end = p + 1 < prompts->count ? prompts->first[p + 1]
                                            : prompts->tokens.count;
        prompts->list[p] =
            (struct generate_prompt){ prompts->tokens.token + prompts->first[p],
                                      end - prompts->first[p] };
    }
    return ERR_OK;
}

void generate_prompts_free(struct generate_prompts *prompts)
{
    for (size_t p = 0; p < prompts->count; p++)
        buffer_free(&prompts->texts[p]);
    free(prompts->texts);
    free(prompts->list);
    free(prompts->tokens.token);
    free(prompts->first);
}
