/* Continues prompts, or scores a text: what tessera-generate shows. On a terminal a
 * text appears as it is written, its controls made visible; in a file or pipe a
 * continuation comes whole and to the byte, so that what is read there is what the
 * model wrote. Several prompts are lines of JSON, in their order. */
#include "src/generate/generate_texts.h"

#include <assert.h>
#include <inttypes.h>
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "src/base/clock.h"
#include "src/base/jsontext.h"
#include "src/base/log.h"
#include "src/base/new.h"
#include "src/data/texts/inputs.h"
#include "src/generate/generate_ranks.h"
#include "src/text/binary_kind.h"
#include "src/text/unicode.h"

#define MAX_TOKENS 128
#define BATCH 8 /* of --prompts */
#define SCORE_BYTES_MAX ((size_t)1 << 30)
/* Nobody waits for so many, and numbers of them stay small. */
#define PROMPTS_MAX 10000000

/* As it was given, and where its tokens begin among all. */
struct given {
    struct buffer text;
    size_t first;
};

struct prompts {
    struct generate_engine *engine;
    struct given *given;          /* [count] */
    struct generate_prompt *list; /* [count] tokens of each */
    struct token_list tokens;     /* of all of them */
    size_t count, capacity;
    size_t tokens_max; /* of the longest */
};

/* --- prompts: read and encoded before the first is continued, since the longest
 * decides the memory of a slot, and a mistake in the last line is told before
 * hours of work; their tokens lie in one list that moves while it grows --- */

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
static enum err prompts_add(void *arg, const char *text, size_t bytes)
{
    struct prompts *prompts = arg;
    struct generate_engine *engine = prompts->engine;
    if (prompts->count == PROMPTS_MAX)
        return err_set(ERR_USAGE, "more than %d prompts", PROMPTS_MAX);
    TRY(array_room(&prompts->given, &prompts->capacity, prompts->count + 1));
    struct given *given = &prompts->given[prompts->count++];
    *given = (struct given){ .first = prompts->tokens.count };
    TRY(buffer_reserve(&given->text, bytes + 1));
    TRY(buffer_add(&given->text, text, bytes));
    TRY(engine->chat != NULL
            ? encode_chat(engine, &given->text, &prompts->tokens)
            : encode_text(engine, &given->text, &prompts->tokens));
    size_t count = prompts->tokens.count - given->first;
    assert(given->first <= prompts->tokens.count);
    if (count > (size_t)engine->context)
        return err_set(ERR_USAGE,
                       "the prompt has %zu tokens, and the context of the "
                       "model %" PRId64,
                       count, engine->context);
    return ERR_OK;
}

/* Reads (src/data/texts/inputs.h) and encodes them: the user's message of a chat where
 * there is a template, behind the --system message; else the text behind the
 * token that begins texts, if the tokenizer has one. The caller frees in any
 * case. */
static enum err prompts_read(struct prompts *prompts)
{
    assert(prompts->count == 0);
    const struct generate_args *args = prompts->engine->args;
    if (args->prompt != NULL)
        TRY(prompts_add(prompts, args->prompt, strlen(args->prompt)));
    else
        TRY(prompt_file_read(args->prompts, prompts_add, prompts));
    TRY(new_zeroed(&prompts->list, prompts->count));
    for (size_t p = 0; p < prompts->count; p++) {
        size_t first = prompts->given[p].first;
        size_t end = p + 1 < prompts->count ? prompts->given[p + 1].first
                                            : prompts->tokens.count;
        prompts->list[p] =
            (struct generate_prompt){ prompts->tokens.token + first,
                                      end - first };
    }
    return ERR_OK;
}

/* --- what is shown --- */

static bool texts_terminal(void)
{
    return isatty(STDOUT_FILENO) == 1;
}

static enum err show_bytes(const void *text, size_t bytes)
{
    if (fwrite(text, 1, bytes, stdout) != bytes || fflush(stdout) != 0)
        return err_errno("standard output");
    return ERR_OK;
}

enum err generate_texts_show(const char *text, size_t bytes)
{
    struct buffer visible = { 0 };
    if (!texts_terminal())
        return show_bytes(text, bytes);
    enum err rc = unicode_add_visible(text, bytes, &visible);
    if (rc == ERR_OK && visible.bytes > 0)
        rc = show_bytes(visible.data, visible.bytes);
    buffer_free(&visible);
    return rc;
}

struct output {
    const struct generate_args *args;
    const struct prompts *prompts;
    bool terminal;
    size_t tokens, prompt_tokens;
};

static enum err show_text(void *arg, size_t prompt, const char *text,
                          size_t bytes)
{
    const struct output *output = arg;
    (void)prompt;
    return output->terminal ? generate_texts_show(text, bytes) : ERR_OK;
}

static enum err write_json(const struct output *output, size_t prompt,
                           const struct generate_result *result)
{
    enum err rc = ERR_OK;
    json_t *line = NULL;
    char *text = NULL;
    const struct buffer *given = &output->prompts->given[prompt].text;
    line = json_pack(
        "{sI so so sI sI ss}", "number", (json_int_t)prompt, "prompt",
        unicode_json(given->data, given->bytes), "completion",
        unicode_json((const uint8_t *)result->text, result->bytes),
        "prompt_tokens", (json_int_t)output->prompts->list[prompt].count,
        "tokens", (json_int_t)result->count, "end",
        generate_end_names[result->end]);
    TRY_OUT(jsontext_make(line, 0, &text));
    TRY_OUT(generate_texts_show(text, strlen(text)));
    TRY_OUT(generate_texts_show("\n", 1));
out:
    json_decref(line);
    free(text);
    return rc;
}

static enum err show_result(void *arg, size_t prompt,
                            const struct generate_result *result)
{
    struct output *output = arg;
    const struct generate_args *args = output->args;
    output->tokens += result->count;
    output->prompt_tokens += output->prompts->list[prompt].count;
    if (result->end == GENERATE_CONTEXT)
        log_warn("prompt %zu: the context is full, so its continuation ends "
                 "after %zu tokens (--context)",
                 prompt, result->count);
    if (args->json || args->prompts != NULL)
        return write_json(output, prompt, result);
    if (output->terminal)
        return generate_texts_show("\n", 1);
    return generate_texts_show(result->text, result->bytes);
}

/* As many slots as are asked for, but no more than there are prompts, each as long
 * as the longest prompt with its answer: memory follows from what is to be done,
 * not from what the model could do. */
enum err generate_texts_continue(struct generate_engine *engine)
{
    enum err rc = ERR_OK;
    char choice[160];
    const struct generate_args *args = engine->args;
    struct prompts prompts = { .engine = engine };
    struct output output = { .args = args, .prompts = &prompts };
    const struct generate_hooks hooks = { .arg = &output,
                                          .text = show_text,
                                          .result = show_result };
    int64_t most = args->max_tokens > 0 ? args->max_tokens : MAX_TOKENS;
    size_t ranks = (size_t)comm_size(engine->comm);
    struct generate_options options = generate_engine_options(engine, most);
    if (generate_ranks_first(engine))
        rc = prompts_read(&prompts);
    TRY_OUT(generate_ranks_share(engine, rc, &prompts.tokens, &prompts.list,
                                 &prompts.count));
    for (size_t p = 0; p < prompts.count; p++)
        if (prompts.list[p].count > prompts.tokens_max)
            prompts.tokens_max = prompts.list[p].count;
    int64_t longest = (int64_t)prompts.tokens_max + most - 1;
    int64_t batch = args->batch > 0 ? args->batch : BATCH;
    int64_t own = (int64_t)((prompts.count + ranks - 1) / ranks);
    if (batch > own)
        batch = own;
    if (longest > engine->context)
        longest = engine->context;
    assert(batch > 0 && longest > 0);
    TRY_OUT(generate_engine_start(engine, batch, longest));
    sample_describe(&options.sample, choice, sizeof choice);
    log_info("tokens: %s (%s)", choice, engine->sample_of);
    /* what mpirun pipes looks like one */
    output.terminal =
        texts_terminal() && !args->json && ranks == 1 && args->prompts == NULL;
    double begin = clock_now();
    TRY_OUT(generate_ranks_run(engine, &options, prompts.list, prompts.count,
                               &hooks));
    double seconds = clock_now() - begin;
    log_info("%zu tokens behind %zu of %s in %.1f s: %.1f a second",
             output.tokens, output.prompt_tokens,
             prompts.count > 1 ? "prompts" : "a prompt", seconds,
             (double)output.tokens / (seconds > 0 ? seconds : 1));
out:
    for (size_t p = 0; prompts.given != NULL && p < prompts.count; p++)
        buffer_free(&prompts.given[p].text);
    free(prompts.given);
    free(prompts.list);
    free(prompts.tokens.token);
    return rc;
}

static enum err read_all(struct buffer *text)
{
    for (;;) {
        if (text->bytes > SCORE_BYTES_MAX)
            return err_set(ERR_USAGE, "standard input: more than %zu bytes",
                           SCORE_BYTES_MAX);
        TRY(buffer_reserve(text, 65536));
        size_t got = fread(text->data + text->bytes, 1, 65536, stdin);
        text->bytes += got;
        if (got == 0)
            break;
    }
    return ferror(stdin) != 0 ? err_errno("standard input") : ERR_OK;
}

/* The text's own tokens alone, none that the tokenizer would put before it: nobody
 * would know whether its nll is in the sum. */
static enum err score_read(struct generate_engine *engine,
                           struct token_list *tokens)
{
    enum err rc = ERR_OK;
    struct buffer text = { 0 };
    TRY_OUT(read_all(&text));
    if (text.bytes == 0)
        TRY_OUT(
            err_set(ERR_USAGE, "--score: there is no text on standard input"));
    TRY_OUT(binary_kind_text("standard input", text.data, text.bytes));
    TRY_OUT(generate_engine_encode(engine, (const char *)text.data, text.bytes,
                                   TOKENIZER_SPECIAL, tokens));
    if ((int64_t)tokens->count > engine->context)
        rc = err_set(ERR_USAGE,
                     "--score: the text has %zu tokens, and the context of "
                     "the model %" PRId64 ": score its parts",
                     tokens->count, engine->context);
out:
    buffer_free(&text);
    return rc;
}

enum err generate_texts_score(struct generate_engine *engine)
{
    assert(engine->args->score);
    enum err rc = ERR_OK;
    struct token_list tokens = { 0 };
    struct generate_prompt *none = NULL;
    size_t prompts = 0;
    double nll = 0;
    char number[JSONTEXT_NUMBER_BYTES];
    bool first = generate_ranks_first(engine);
    if (first)
        rc = score_read(engine, &tokens);
    TRY_OUT(generate_ranks_share(engine, rc, &tokens, &none, &prompts));
    TRY_OUT(generate_engine_start(engine, 1, (int64_t)tokens.count));
    TRY_OUT(generate_ranks_score(engine, tokens.token, tokens.count, &nll));
    if (!isfinite(nll))
        rc = err_set(ERR_NUMERIC, "the loss is not a finite number: the "
                                  "model's weights are damaged");
    jsontext_number(nll, number);
    if (rc == ERR_OK && first &&
        (printf("{\"tokens\": %zu, \"nll\": %s}\n", tokens.count, number) < 0 ||
         fflush(stdout) != 0))
        rc = err_errno("standard output");
out:
    free(tokens.token);
    free(none);
    return rc;
}
