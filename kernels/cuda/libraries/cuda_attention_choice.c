/* Which way computes attention for which shape: our kernels or cuDNN, by
 * measurement, kept as text for checkpoints. The ways themselves are
 * cuda_attention.cu and cuda_dnn_attention.c. A run has few shapes,
 * so a list that is looked through serves. */
#include "kernels/cuda/libraries/cuda_attention_choice.h"

#include <assert.h>
#include <inttypes.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "kernels/cuda/libraries/cuda_attention_text.h"
#include "kernels/cuda/libraries/cuda_fallback.h"
#include "src/base/log.h"
#include "src/base/new.h"

#define SHAPES_MAX 64 /* others have the own kernels */
#define ALIGNMENT ((size_t)256)
#define ANEW "parallel.allow_arithmetic_change = true has it measured anew"

struct entry {
    struct cuda_attention_line line;
    bool chosen;
    struct cuda_dnn_attention *plan; /* there where the line is cuDNN's */
    struct entry *lender; /* whose plan it has while a text is read */
};

struct cuda_attention_choice {
    struct cuda_dnn_library opened;
    const struct cuda_dnn_library *library;
    struct cuda_attention_own own;
    cudnnHandle_t handle;
    bool settled; /* by text: other shapes have the own kernels from now on */
    bool full;    /* a shape had no place, which was asked for */
    const char *unfit; /* what cuDNN is not asked for, as met last; or NULL */
    int count;
    struct entry entries[SHAPES_MAX];
};

enum err cuda_attention_choice_create(const struct cuda_dnn_library *library,
                                      const struct cuda_attention_own *own,
                                      struct cuda_attention_choice **out)
{
    enum err rc = ERR_OK;
    struct cuda_attention_choice *choice = NULL;
    *out = NULL;
    TRY(new_zeroed(&choice, 1));
    choice->own = *own;
    choice->library = library;
    if (library == NULL) {
        TRY_OUT(cuda_dnn_library_open(&choice->opened));
        choice->library = &choice->opened;
    }
    TRY_OUT(cuda_dnn_library_error(
        choice->library, choice->library->create(&choice->handle), "starting"));
out:
    return new_or_none(rc, choice, out, cuda_attention_choice_destroy);
}

void cuda_attention_choice_destroy(struct cuda_attention_choice *choice)
{
    if (choice == NULL)
        return;
    for (int i = 0; i < choice->count; i++)
        cuda_dnn_attention_destroy(choice->entries[i].plan);
    if (choice->handle != NULL)
        (void)choice->library->destroy(choice->handle);
    cuda_dnn_library_close(&choice->opened);
    free(choice);
}

size_t cuda_attention_choice_version(const struct cuda_attention_choice *choice)
{
    return choice->library->version();
}

void cuda_attention_choice_count(const struct cuda_attention_choice *choice,
                                 struct cuda_attention_count *out)
{
    *out = (struct cuda_attention_count){ .shapes = choice->count,
                                          .unfit = choice->unfit };
    for (int i = 0; i < choice->count; i++)
        out->dnn += choice->entries[i].line.dnn;
}

/* --- shapes --- */

static struct cuda_attention_key key_of(const struct attention *s,
                                        bool backward)
{
    return (struct cuda_attention_key){ s->batch,    s->seq,
                                        s->heads,    s->kv_heads,
                                        s->head_dim, s->alibi_slopes != NULL,
                                        backward };
}

/* Whether the key says all of the shape that a plan is made of: scale and random
 * numbers are given with each call. */
static bool is_key_of(const struct cuda_attention_key *key,
                      const struct attention *s)
{
    struct attention shape = cuda_attention_shape(key, s->alibi_slopes);
    shape.scale = s->scale;
    shape.random = s->random;
    return cuda_dnn_attention_same(&shape, s);
}

/* NULL: one too many. */
static struct entry *entry_of(struct cuda_attention_choice *choice,
                              const struct cuda_attention_key *key)
{
    for (int i = 0; i < choice->count; i++)
        if (memcmp(&choice->entries[i].line.key, key, sizeof *key) == 0)
            return &choice->entries[i];
    if (choice->count == SHAPES_MAX)
        return NULL;
    struct entry *entry = &choice->entries[choice->count++];
    *entry = (struct entry){ .line.key = *key };
    return entry;
}

static enum err make_plan(struct cuda_attention_choice *choice,
                          struct entry *entry)
{
    static const float some_slopes;
    struct attention shape =
        cuda_attention_shape(&entry->line.key, &some_slopes);
    return cuda_dnn_attention_create(choice->library, choice->handle, NULL,
                                     &shape, entry->line.key.backward != 0,
                                     entry->line.cut, entry->line.engine,
                                     &entry->plan);
}

/* "forward of 8 x 2048, 16 heads of 128". */
static const char *words_of(const struct cuda_attention_key *key,
                            char words[96])
{
    snprintf(words, 96,
             "attention %s of %" PRId64 " x %" PRId64 ", %" PRId64
             " heads of %" PRId64 " for %" PRId64 "%s",
             key->backward ? "backward" : "forward", key->batch, key->seq,
             key->heads, key->head_dim, key->kv_heads,
             key->alibi ? ", ALiBi" : "");
    return words;
}

/* Half of cuDNN's speed, and a matter of the configuration, so not of
 * cuda_fallback(): said when it is met first. */
static void note_unfit(struct cuda_attention_choice *choice, enum dtype dtype,
                       const struct attention *shape)
{
    const char *why = dtype != DTYPE_BF16           ? "fp32"
                      : shape->sequence_ids != NULL ? "samples of several "
                                                      "documents"
                      : shape->dropout > 0          ? "dropout"
                      : shape->window > 0           ? "a sliding window"
                      : shape->head_dim % 8 != 0 || shape->head_dim > 128
                          ? "heads of this width"
                          : "an option of the model that cuDNN is not told";
    if (choice->unfit != NULL && strcmp(choice->unfit, why) == 0)
        return;
    choice->unfit = why;
    if (dtype == DTYPE_BF16)
        log_info("attention with %s is the own one, at about half of cuDNN's "
                 "speed",
                 why);
}

/* After the choices were taken, as of an evaluation's last microbatch: nobody
 * has measured it, and a run is not ended for that. */
static void note_unmeasured(const struct cuda_attention_choice *choice,
                            struct entry *entry)
{
    char words[96];
    if (!choice->settled || entry->chosen)
        return;
    entry->chosen = true;
    log_warn("%s is the own one: it came after the others were measured",
             words_of(&entry->line.key, words));
}

/* *plan: cuDNN's, if it is to be used. */
static enum err look_up(struct cuda_attention_choice *choice, enum dtype dtype,
                        const struct attention *shape, bool backward,
                        const struct cuda_dnn_attention **plan)
{
    struct cuda_attention_key key = key_of(shape, backward);
    *plan = NULL;
    if (!cuda_dnn_attention_fits(dtype, shape) || !is_key_of(&key, shape)) {
        note_unfit(choice, dtype, shape);
        return ERR_OK;
    }
    struct entry *entry = entry_of(choice, &key);
    if (entry == NULL) {
        if (!choice->full)
            TRY(cuda_fallback("attention of more than %d shapes", SHAPES_MAX));
        choice->full = true;
        return ERR_OK;
    }
    note_unmeasured(choice, entry);
    if (entry->line.dnn)
        *plan = entry->plan;
    return ERR_OK;
}

enum err cuda_attention_choice_forward(struct cuda_attention_choice *choice,
                                       const struct kernel_ctx *ctx,
                                       enum dtype dtype,
                                       const struct attention *shape,
                                       const void *qkv, void *out, float *lse)
{
    const struct cuda_dnn_attention *plan = NULL;
    TRY(look_up(choice, dtype, shape, false, &plan));
    if (plan == NULL)
        return choice->own.forward(ctx, dtype, shape, qkv, out, lse);
    return cuda_dnn_attention_forward(plan, choice->handle, ctx, shape, qkv,
                                      out, lse);
}

enum err cuda_attention_choice_backward(
    struct cuda_attention_choice *choice, const struct kernel_ctx *ctx,
    enum dtype dtype, const struct attention *shape, const void *qkv,
    const void *out, const float *lse, const void *dout, void *dqkv)
{
    const struct cuda_dnn_attention *plan = NULL;
    TRY(look_up(choice, dtype, shape, true, &plan));
    if (plan == NULL)
        return choice->own.backward(ctx, dtype, shape, qkv, out, lse, dout,
                                    dqkv);
    return cuda_dnn_attention_backward(plan, choice->handle, ctx, shape, qkv,
                                       out, lse, dout, dqkv);
}

/* --- measuring --- */

struct timing {
    struct cuda_attention_choice *choice;
    const struct kernel_ctx *ctx;
    const struct entry *entry;
    struct attention shape;
    void *qkv, *out, *dout, *dqkv;
    float *lse, *slopes;
};

static void *take(char *memory, size_t *used, size_t bytes)
{
    assert(*used % ALIGNMENT == 0);
    void *piece = memory + *used;
    *used += (bytes + ALIGNMENT - 1) / ALIGNMENT * ALIGNMENT;
    return piece;
}

/* False: `bytes` are too few. */
static bool place(const struct cuda_attention_key *key, void *memory,
                  size_t bytes, struct timing *timing)
{
    size_t used = 0;
    size_t rows = (size_t)(key->batch * key->seq);
    size_t out = rows * (size_t)(key->heads * key->head_dim) * 2;
    size_t qkv =
        rows * (size_t)((key->heads + 2 * key->kv_heads) * key->head_dim) * 2;
    timing->slopes = take(memory, &used, (size_t)key->heads * sizeof(float));
    timing->lse =
        take(memory, &used, rows * (size_t)key->heads * sizeof(float));
    timing->qkv = take(memory, &used, qkv);
    timing->out = take(memory, &used, out);
    timing->dout = take(memory, &used, out);
    timing->dqkv = take(memory, &used, qkv);
    return used <= bytes;
}

static enum err timing_run(void *argument)
{
    const struct timing *t = argument;
    if (t->entry->line.key.backward != 0)
        return cuda_attention_choice_backward(t->choice, t->ctx, DTYPE_BF16,
                                              &t->shape, t->qkv, t->out, t->lse,
                                              t->dout, t->dqkv);
    return cuda_attention_choice_forward(t->choice, t->ctx, DTYPE_BF16,
                                         &t->shape, t->qkv, t->out, t->lse);
}

/* With as few parts as the scratch has room for; whether it has is known of a
 * plan only. */
static enum err plan_parts(struct cuda_attention_choice *choice,
                           const struct kernel_ctx *ctx, struct entry *entry,
                           const struct attention *shape)
{
    struct cuda_dnn_attention_cut *cut = &entry->line.cut;
    *cut = (struct cuda_dnn_attention_cut){ shape->batch, shape->heads };
    if (entry->line.key.backward != 0)
        (void)cuda_dnn_attention_cut_of(shape, ctx->scratch_bytes, cut);
    for (;;) {
        strcpy(entry->line.engine, CUDA_DNN_ENGINE_ANY);
        TRY(make_plan(choice, entry));
        size_t bytes = cuda_dnn_attention_scratch(entry->plan);
        if (bytes <= ctx->scratch_bytes)
            return ERR_OK;
        cuda_dnn_attention_destroy(entry->plan);
        entry->plan = NULL;
        if (!cuda_dnn_attention_cut_finer(shape, cut))
            return err_set(ERR_UNSUPPORTED,
                           "cuDNN needs %.1f MiB of scratch for the fewest "
                           "heads that it can do at a time, %" PRId64
                           ", and %.1f are planned: shorter samples "
                           "(data.seq_len) take less",
                           (double)bytes / 0x1p20, cut->heads,
                           (double)ctx->scratch_bytes / 0x1p20);
    }
}

static enum err measure(struct cuda_attention_choice *choice,
                        const struct kernel_ctx *ctx, struct entry *entry,
                        struct timing *timing)
{
    enum err rc = plan_parts(choice, ctx, entry, &timing->shape);
    double own_us = 0, dnn_us = 0;
    char words[96];
    if (rc == ERR_OK) {
        entry->line.dnn = true;
        rc = choice->own.time(ctx->stream, timing_run, timing, &dnn_us);
        entry->line.dnn = false;
    }
    if (rc == ERR_MEMORY ||
        (rc != ERR_OK && entry->plan != NULL && rc != ERR_UNSUPPORTED))
        return rc;
    if (rc != ERR_OK) {
        /* there is no engine for it, or cuDNN is not what it was built for */
        TRY(cuda_fallback("%s: %s", words_of(&entry->line.key, words),
                          err_text()));
    } else {
        TRY(choice->own.time(ctx->stream, timing_run, timing, &own_us));
        entry->line.dnn = dnn_us < own_us;
        log_info("%s: cuDNN %.0f us in parts of %" PRId64 " x %" PRId64
                 " heads, own %.0f us",
                 words_of(&entry->line.key, words), dnn_us,
                 entry->line.cut.sequences, entry->line.cut.heads, own_us);
    }
    entry->chosen = true;
    return ERR_OK;
}

enum err cuda_attention_choice_measure(struct cuda_attention_choice *choice,
                                       const struct kernel_ctx *ctx,
                                       void *memory, size_t bytes)
{
    char words[96];
    assert((uintptr_t)memory % ALIGNMENT == 0);
    for (int i = 0; i < choice->count; i++) {
        struct entry *entry = &choice->entries[i];
        struct timing timing = { .choice = choice, .ctx = ctx, .entry = entry };
        if (entry->chosen)
            continue;
        if (!place(&entry->line.key, memory, bytes, &timing)) {
            TRY(cuda_fallback("%s does not fit into the %zu MiB that are left "
                              "to measure in",
                              words_of(&entry->line.key, words), bytes >> 20));
            entry->chosen = true;
            continue;
        }
        timing.shape = cuda_attention_shape(&entry->line.key, timing.slopes);
        TRY(measure(choice, ctx, entry, &timing));
    }
    return ERR_OK;
}

/* --- text --- */

enum err cuda_attention_choice_write(const struct cuda_attention_choice *choice,
                                     char **text)
{
    size_t bytes = 0;
    *text = NULL;
    FILE *file = open_memstream(text, &bytes);
    if (file == NULL)
        return err_set(ERR_MEMORY, "no memory for the choice of attention");
    fprintf(file, "cudnn %zu\n", choice->library->version());
    for (int i = 0; i < choice->count; i++)
        cuda_attention_text_write(file, &choice->entries[i].line);
    if (fclose(file) == 0)
        return ERR_OK;
    free(*text);
    *text = NULL;
    return err_set(ERR_MEMORY, "no memory for the choice of attention");
}

/* Plans take seconds: who reads what it has, as a run that goes back, keeps them. */
static void borrow_plan(struct cuda_attention_choice *choice,
                        struct entry *entry)
{
    struct cuda_attention_line *want = &entry->line;
    for (int i = 0; i < choice->count && entry->plan == NULL; i++) {
        struct entry *old = &choice->entries[i];
        if (memcmp(&old->line.key, &want->key, sizeof want->key) == 0 &&
            memcmp(&old->line.cut, &want->cut, sizeof want->cut) == 0 &&
            strcmp(old->line.engine, want->engine) == 0) {
            entry->plan = old->plan;
            entry->lender = old;
            old->plan = NULL;
        }
    }
}

/* What decides bits is what it was when the text was written, and runs here. */
static enum err plan_entry(struct cuda_attention_choice *choice,
                           const struct kernel_ctx *ctx, size_t version,
                           struct entry *entry)
{
    char words[96];
    if (version != choice->library->version())
        return err_set(ERR_UNSUPPORTED,
                       "the run's attention is that of cuDNN %zu, here is %zu: "
                       "load that version, its bits are others",
                       version, choice->library->version());
    if (entry->line.engine[0] == '\0')
        return err_set(ERR_UNSUPPORTED,
                       "the run's choice of attention is of a version that did "
                       "not keep cuDNN's engines: " ANEW);
    borrow_plan(choice, entry);
    enum err rc = entry->plan != NULL ? ERR_OK : make_plan(choice, entry);
    if (rc == ERR_OK &&
        cuda_dnn_attention_scratch(entry->plan) > ctx->scratch_bytes)
        rc = err_set(ERR_UNSUPPORTED,
                     "cuDNN needs %zu KiB of scratch here, of %zu: go on with "
                     "GPUs as it began on",
                     cuda_dnn_attention_scratch(entry->plan) >> 10,
                     ctx->scratch_bytes >> 10);
    if (rc != ERR_UNSUPPORTED)
        return rc;
    return err_set(rc, "%s cannot be the run's: %s, or " ANEW,
                   words_of(&entry->line.key, words), err_text());
}

enum err cuda_attention_choice_read(struct cuda_attention_choice *choice,
                                    const struct kernel_ctx *ctx,
                                    const char *text)
{
    enum err rc = ERR_OK;
    struct entry *entries = NULL;
    size_t version = 0;
    int count = 0;
    const char *at = strchr(text, '\n');
    if (at == NULL || sscanf(text, "cudnn %zu", &version) != 1)
        return err_set(ERR_DATA, "the choice of attention does not begin with "
                                 "cuDNN's version: the text is damaged");
    TRY(new_zeroed(&entries, SHAPES_MAX));
    for (at++; *at != '\0'; count++) {
        struct entry *entry = &entries[count];
        if (count == SHAPES_MAX || !cuda_attention_text_read(&at, &entry->line))
            TRY_OUT(err_set(ERR_DATA,
                            "the choice of attention is damaged in line %d",
                            count + 2));
        entry->chosen = true;
    }
    for (int i = 0; i < count; i++)
        if (entries[i].line.dnn)
            TRY_OUT(plan_entry(choice, ctx, version, &entries[i]));
    for (int i = 0; i < count; i++) {
        struct entry *entry = entry_of(choice, &entries[i].line.key);
        if (entry == NULL)
            continue;
        cuda_dnn_attention_destroy(entry->plan);
        *entry = entries[i];
        entry->lender = NULL;
        entries[i].plan = NULL;
    }
    choice->settled = true;
out:
    for (int i = 0; i < count; i++)
        if (rc != ERR_OK && entries[i].lender != NULL)
            entries[i].lender->plan = entries[i].plan;
        else
            cuda_dnn_attention_destroy(entries[i].plan);
    free(entries);
    return rc;
}

void cuda_attention_choice_forget(struct cuda_attention_choice *choice)
{
    for (int i = 0; i < choice->count; i++)
        cuda_dnn_attention_destroy(choice->entries[i].plan);
    choice->count = 0;
    choice->settled = choice->full = false;
}
