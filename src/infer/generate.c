/* The loop of generation: prompts into slots, tokens out of logits, results in
 * order.
 *
 * Continuous batching (Yu et al., Orca, 2022): the engine has a number of
 * slots, each with keys and values of one text. A prompt takes a free slot;
 * each call of the engine gives all slots at work one token (or many, of a
 * prompt that has just come), and a slot whose text has ended is free for the
 * next prompt in the very next call, so short texts do not wait for long ones.
 * What a slot still holds of the text before is kept as far as the next prompt
 * begins alike. A token is a function of seed, prompt and place, not of the
 * slot or of who shares the call: so a file of prompts gives the same texts in
 * any number of slots. */
#include "src/infer/generate.h"

#include <assert.h>
#include <inttypes.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"

const char *const generate_end_names[] = { "eos", "stop", "max_tokens",
                                           "context", "interrupted" };

#define GENERATE_NONE SIZE_MAX

static const struct generate_hooks generate_no_hooks;

/* A slot of the infer, and the prompt at work in it. */
struct generate_slot {
    size_t prompt;            /* GENERATE_NONE: it is free */
    struct token_list tokens; /* the prompt and what has come */
    size_t given;             /* of them the prompt's */
    size_t held;              /* of them those that the infer holds */
    size_t reused;            /* of the prompt's */
    size_t shown;             /* bytes of the text that the hook has had */
    struct generate_text text;
};

/* A result that waits for those before it. */
struct generate_ended {
    bool is;
    struct generate_result result; /* its tokens and text are owned */
};

struct generate {
    struct generate_model model;
    struct sample *sample;
    struct generate_slot *slots; /* [sequences] */
    struct infer_tokens *calls;  /* [sequences] of one call */
    size_t *called;              /* [sequences] whose slot it is */
    float *logits;               /* [sequences, vocab_size] */
    /* of the run */
    const struct generate_options *options;
    const struct generate_hooks *hooks;
    struct generate_text_options text_options;
    const struct generate_prompt *prompts;
    size_t count, begun, delivered;
    struct generate_ended *ended; /* [count] */
};

enum err generate_create(const struct generate_model *model,
                         struct generate **out)
{
    enum err rc = ERR_OK;
    size_t slots = (size_t)model->sequences;
    assert(model->sequences > 0 && model->rows >= model->sequences);
    assert(model->vocab > 0 && model->vocab <= model->vocab_size);
    struct generate *generate = NULL;
    TRY(new_zeroed(&generate, 1));
    generate->model = *model;
    TRY_OUT(new_zeroed(&generate->slots, slots));
    TRY_OUT(new_zeroed(&generate->calls, slots));
    TRY_OUT(new_zeroed(&generate->called, slots));
    TRY_OUT(new_room(&generate->logits, slots * (size_t)model->vocab_size));
    TRY_OUT(sample_create(model->vocab, &generate->sample));
    for (size_t s = 0; s < slots; s++)
        generate->slots[s].prompt = GENERATE_NONE;
out:
    return new_or_none(rc, generate, out, generate_destroy);
}

void generate_destroy(struct generate *generate)
{
    if (generate == NULL)
        return;
    for (int64_t s = 0;
         generate->slots != NULL && s < generate->model.sequences; s++) {
        free(generate->slots[s].tokens.token);
        generate_text_free(&generate->slots[s].text);
    }
    free(generate->slots);
    free(generate->calls);
    free(generate->called);
    free(generate->logits);
    sample_destroy(generate->sample);
    free(generate);
}

static enum err generate_check_tokens(const struct generate *generate,
                                      const int32_t *tokens, size_t count)
{
    if (count > (size_t)generate->model.positions)
        return err_set(ERR_USAGE,
                       "a text of %zu tokens, and the context has room for "
                       "%" PRId64,
                       count, generate->model.positions);
    for (size_t i = 0; i < count; i++)
        if (tokens[i] < 0 || tokens[i] >= generate->model.vocab_size)
            return err_set(ERR_USAGE,
                           "token %d is outside the model's vocabulary of "
                           "%" PRId64,
                           tokens[i], generate->model.vocab_size);
    return ERR_OK;
}

/* Its place among all prompts, of which these may be some (generate_options). */
static size_t generate_number(const struct generate *generate, size_t p)
{
    const struct generate_options *options = generate->options;
    return options->stride == 0 ? p : options->first + p * options->stride;
}

static enum err generate_check(const struct generate *generate)
{
    const struct generate_options *options = generate->options;
    TRY(sample_check(&options->sample));
    if (options->max_tokens < 1)
        return err_set(ERR_USAGE, "%" PRId64 " new tokens: 1 is the least",
                       options->max_tokens);
    for (size_t s = 0; s < options->stop_count; s++)
        if (options->stop[s][0] == '\0')
            return err_set(ERR_USAGE, "an empty text is nowhere to stop at");
    for (size_t p = 0; p < generate->count; p++) {
        const struct generate_prompt *prompt = &generate->prompts[p];
        if (prompt->count == 0)
            return err_set(ERR_USAGE,
                           "prompt %zu has no token, and nothing can follow "
                           "nothing",
                           generate_number(generate, p));
        enum err rc =
            generate_check_tokens(generate, prompt->tokens, prompt->count);
        TRY(err_prefix(rc, "prompt %zu", generate_number(generate, p)));
    }
    return ERR_OK;
}

/* The slot takes tokens; it keeps what it holds of them, but for the last one,
 * whose logits are wanted. */
static enum err generate_give(struct generate *generate, size_t s,
                              const int32_t *tokens, size_t count)
{
    struct generate_slot *slot = &generate->slots[s];
    size_t same = 0;
    while (same < slot->held && same + 1 < count &&
           slot->tokens.token[same] == tokens[same])
        same++;
    infer_cut(generate->model.infer, (int64_t)s, (int64_t)same);
    slot->tokens.count = slot->held = slot->reused = same;
    slot->given = count;
    return token_list_add(&slot->tokens, tokens + same, count - same);
}

static enum err generate_begin(struct generate *generate, size_t s)
{
    struct generate_slot *slot = &generate->slots[s];
    const struct generate_prompt *prompt = &generate->prompts[generate->begun];
    TRY(generate_give(generate, s, prompt->tokens, prompt->count));
    generate_text_begin(&slot->text, &generate->text_options, prompt->tokens,
                        prompt->count);
    slot->shown = 0;
    slot->prompt = generate->begun++;
    return ERR_OK;
}

static enum err generate_show(struct generate *generate,
                              struct generate_slot *slot)
{
    const struct generate_hooks *hooks = generate->hooks;
    size_t from = slot->shown;
    slot->shown = slot->text.ready;
    if (hooks->text == NULL || from == slot->shown)
        return ERR_OK;
    return hooks->text(hooks->arg, slot->prompt,
                       (const char *)slot->text.text.data + from,
                       slot->shown - from);
}

static void generate_forget(struct generate_ended *ended)
{
    free((void *)ended->result.tokens);
    free((void *)ended->result.text);
    *ended = (struct generate_ended){ .is = false };
}

/* Results that are next in the order of prompts; one that has ended before its
 * turn waits. */
static enum err generate_deliver(struct generate *generate)
{
    const struct generate_hooks *hooks = generate->hooks;
    while (generate->delivered < generate->count &&
           generate->ended[generate->delivered].is) {
        struct generate_ended *ended = &generate->ended[generate->delivered];
        enum err rc = ERR_OK;
        if (hooks->result != NULL)
            rc = hooks->result(hooks->arg, generate->delivered, &ended->result);
        generate_forget(ended);
        generate->delivered++;
        TRY(rc);
    }
    return ERR_OK;
}

/* The slot is free again. */
static enum err generate_finish(struct generate *generate,
                                struct generate_slot *slot,
                                enum generate_end end)
{
    struct generate_ended *ended = &generate->ended[slot->prompt];
    size_t count = slot->tokens.count - slot->given;
    TRY(generate_text_end(&slot->text));
    TRY(generate_show(generate, slot));
    int32_t *tokens = malloc((count + 1) * sizeof *tokens);
    char *text = malloc(slot->text.text.bytes + 1);
    ended->is = true;
    ended->result = (struct generate_result){
        .tokens = tokens,
        .count = count,
        .text = text,
        .bytes = slot->text.text.bytes,
        .reused = slot->reused,
        .end = slot->text.stopped ? GENERATE_STOP : end,
    };
    if (tokens == NULL || text == NULL)
        return err_set(ERR_MEMORY, "no memory for a continuation");
    memcpy(tokens, slot->tokens.token + slot->given, count * sizeof *tokens);
    if (slot->text.text.bytes > 0)
        memcpy(text, slot->text.text.data, slot->text.text.bytes);
    slot->prompt = GENERATE_NONE;
    return generate_deliver(generate);
}

/* The next token of a slot whose logits are there. */
static enum err generate_choose(struct generate *generate, size_t s,
                                const float *logits)
{
    struct generate_slot *slot = &generate->slots[s];
    const struct generate_options *options = generate->options;
    int32_t token;
    struct sample_history history = { slot->tokens.token, slot->tokens.count };
    size_t number = generate_number(generate, slot->prompt);
    TRY(sample_next(generate->sample, &options->sample, logits, history, number,
                    slot->tokens.count, &token));
    for (size_t e = 0; e < options->eos_count; e++)
        if (token == options->eos[e])
            return generate_finish(generate, slot, GENERATE_EOS);
    TRY(token_list_add(&slot->tokens, &token, 1));
    TRY(generate_text_add(&slot->text, token));
    if (slot->text.stopped)
        return generate_finish(generate, slot, GENERATE_STOP);
    if (slot->tokens.count - slot->given >= (size_t)options->max_tokens)
        return generate_finish(generate, slot, GENERATE_MAX_TOKENS);
    if (slot->tokens.count > (size_t)generate->model.positions)
        return generate_finish(generate, slot, GENERATE_CONTEXT);
    return generate_show(generate, slot);
}

/* The calls of one forward: a token of each slot that goes on, the rest of the
 * rows for prompts in the order of slots. */
static int generate_list(struct generate *generate)
{
    const struct generate_model *model = &generate->model;
    int64_t room = model->rows;
    int calls = 0;
    for (int64_t s = 0; s < model->sequences; s++)
        room -= generate->slots[s].prompt != GENERATE_NONE;
    for (int64_t s = 0; s < model->sequences; s++) {
        const struct generate_slot *slot = &generate->slots[s];
        if (slot->prompt == GENERATE_NONE)
            continue;
        int64_t count = (int64_t)(slot->tokens.count - slot->held);
        if (count > room + 1)
            count = room + 1;
        room -= count - 1;
        bool last = slot->held + (size_t)count == slot->tokens.count;
        generate->called[calls] = (size_t)s;
        generate->calls[calls] = (struct infer_tokens){
            .slot = s,
            .count = count,
            .tokens = slot->tokens.token + slot->held,
            .wanted = last,
            .logits =
                last ? generate->logits + calls * model->vocab_size : NULL,
        };
        calls++;
    }
    return calls;
}

/* One call with the hooks around it; *stop: it was not made. */
static enum err generate_forward(struct generate *generate,
                                 const struct generate_hooks *hooks, int calls,
                                 bool *stop)
{
    const struct generate_model *model = &generate->model;
    *stop = false;
    if (hooks->before != NULL)
        TRY(hooks->before(hooks->arg, stop));
    if (*stop)
        return ERR_OK;
    enum err rc =
        infer_forward(model->infer, model->access, generate->calls, calls);
    return hooks->after != NULL ? hooks->after(hooks->arg, rc) : rc;
}

static enum err generate_interrupt(struct generate *generate)
{
    for (int64_t s = 0; s < generate->model.sequences; s++)
        if (generate->slots[s].prompt != GENERATE_NONE)
            TRY(generate_finish(generate, &generate->slots[s],
                                GENERATE_INTERRUPTED));
    return ERR_OK;
}

static enum err generate_loop(struct generate *generate)
{
    for (;;) {
        bool stop;
        for (int64_t s = 0;
             s < generate->model.sequences && generate->begun < generate->count;
             s++)
            if (generate->slots[s].prompt == GENERATE_NONE)
                TRY(generate_begin(generate, (size_t)s));
        int calls = generate_list(generate);
        if (calls == 0)
            return ERR_OK;
        TRY(generate_forward(generate, generate->hooks, calls, &stop));
        if (stop)
            return generate_interrupt(generate);
        for (int c = 0; c < calls; c++) {
            const struct infer_tokens *call = &generate->calls[c];
            generate->slots[generate->called[c]].held += (size_t)call->count;
            if (call->wanted > 0)
                TRY(generate_choose(generate, generate->called[c],
                                    call->logits));
        }
    }
}

enum err generate_run(struct generate *generate,
                      const struct generate_options *options,
                      const struct generate_prompt *prompts, size_t count,
                      const struct generate_hooks *hooks)
{
    generate->options = options;
    generate->hooks = hooks != NULL ? hooks : &generate_no_hooks;
    generate->text_options = (struct generate_text_options){
        .tokenizer = generate->model.tokenizer,
        .stop = options->stop,
        .stop_count = options->stop_count,
    };
    generate->prompts = prompts;
    generate->count = count;
    generate->begun = generate->delivered = 0;
    TRY(generate_check(generate));
    TRY(new_zeroed(&generate->ended, count + 1));
    enum err rc = generate_loop(generate);
    for (int64_t s = 0; s < generate->model.sequences; s++) {
        generate->slots[s].prompt = GENERATE_NONE;
        if (rc != ERR_OK) /* what a failed call has left is not known */
            generate->slots[s].held = 0;
    }
    for (size_t p = 0; p < count; p++)
        generate_forget(&generate->ended[p]);
    free(generate->ended);
    return rc;
}

enum err generate_score(struct generate *generate, const int32_t *tokens,
                        size_t count, const struct generate_hooks *hooks,
                        double *nll)
{
    enum err rc = ERR_OK;
    bool stop = false;
    size_t rows = (size_t)generate->model.rows;
    *nll = 0;
    TRY(generate_check_tokens(generate, tokens, count));
    if (count < 2)
        return ERR_OK;
    float *losses = NULL;
    TRY(new_room(&losses, rows));
    /* what the slot holds is not compared: all losses are wanted */
    generate->slots[0].held = 0;
    TRY_OUT(generate_give(generate, 0, tokens, count - 1));
    for (size_t at = 0; at < count - 1 && !stop;) {
        size_t now = count - 1 - at < rows ? count - 1 - at : rows;
        generate->calls[0] = (struct infer_tokens){
            .count = (int64_t)now,
            .tokens = tokens + at,
            .wanted = (int64_t)now,
            .labels = tokens + at + 1,
            .nll = losses,
        };
        TRY_OUT(generate_forward(
            generate, hooks != NULL ? hooks : &generate_no_hooks, 1, &stop));
        for (size_t i = 0; i < now && !stop; i++)
            *nll += losses[i];
        at += stop ? 0 : now;
        generate->slots[0].held = at;
    }
    if (stop)
        rc = err_set(ERR_USAGE, "interrupted before the end of the text");
out:
    free(losses);
    return rc;
}
