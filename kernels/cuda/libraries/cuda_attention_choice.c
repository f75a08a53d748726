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

#include "kernels/cuda/libraries/cuda_dnn_attention.h"
#include "kernels/cuda/libraries/cuda_fallback.h"
#include "src/base/log.h"
#include "src/base/new.h"

#define SHAPES_MAX 64 /* others have the own kernels */
#define ALIGNMENT ((size_t)256)

/* Compared as bytes: it has no gaps. */
struct key {
    int64_t batch, seq, heads, kv_heads, head_dim;
    int64_t alibi, backward;
    int64_t slices; /* of heads; more than 1 only of one sequence */
};

struct entry {
    struct key key;
    bool chosen;
    bool dnn;
    struct cuda_dnn_attention *plan; /* NULL: not made yet */
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
        out->dnn += choice->entries[i].dnn;
}

/* --- shapes --- */

static struct key key_of(const struct attention *s, bool backward)
{
    struct cuda_dnn_attention_cut cut = { .sequences = s->batch, .slices = 1 };
    if (backward)
        cut = cuda_dnn_attention_cut_of(s);
    return (struct key){ cut.sequences, s->seq,      s->heads,
                         s->kv_heads,   s->head_dim, s->alibi_slopes != NULL,
                         backward,      cut.slices };
}

/* The scale is a number that kernels are given. */
static struct attention shape_of(const struct key *key, const float *slopes)
{
    return (struct attention){ .batch = key->batch,
                               .seq = key->seq,
                               .heads = key->heads,
                               .kv_heads = key->kv_heads,
                               .head_dim = key->head_dim,
                               .scale = 1.0f,
                               .alibi_slopes = key->alibi ? slopes : NULL };
}

/* Whether the key says all of the shape that a plan is made of: sequences may be
 * cut, scale and random numbers are given with each call. */
static bool is_key_of(const struct key *key, const struct attention *s)
{
    struct attention shape = shape_of(key, s->alibi_slopes);
    shape.batch = s->batch;
    shape.scale = s->scale;
    shape.random = s->random;
    return cuda_dnn_attention_same(&shape, s);
}

/* NULL: one too many. */
static struct entry *entry_of(struct cuda_attention_choice *choice,
                              const struct key *key)
{
    for (int i = 0; i < choice->count; i++)
        if (memcmp(&choice->entries[i].key, key, sizeof *key) == 0)
            return &choice->entries[i];
    if (choice->count == SHAPES_MAX)
        return NULL;
    struct entry *entry = &choice->entries[choice->count++];
    *entry = (struct entry){ .key = *key };
    return entry;
}

static enum err make_plan(struct cuda_attention_choice *choice,
                          struct entry *entry)
{
    static const float some_slopes;
    struct attention shape = shape_of(&entry->key, &some_slopes);
    if (entry->plan != NULL)
        return ERR_OK;
    return cuda_dnn_attention_create(choice->library, choice->handle, NULL,
                                     &shape, entry->key.backward != 0,
                                     entry->key.slices, &entry->plan);
}

/* "forward of 8 x 2048, 16 heads of 128". */
static const char *words_of(const struct key *key, char words[96])
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
                      : cuda_dnn_attention_fits(dtype, shape)
                          ? "samples of this length"
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
             words_of(&entry->key, words));
}

/* *plan: cuDNN's, if it is to be used. */
static enum err look_up(struct cuda_attention_choice *choice, enum dtype dtype,
                        const struct attention *shape, bool backward,
                        const struct cuda_dnn_attention **plan)
{
    struct key key = key_of(shape, backward);
    *plan = NULL;
    if (!cuda_dnn_attention_fits(dtype, shape) || key.slices == 0 ||
        !is_key_of(&key, shape)) {
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
    if (!entry->dnn)
        return ERR_OK;
    TRY(make_plan(choice, entry));
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

static const void *past(const void *tensor, int64_t elements)
{
    return (const char *)tensor + 2 * elements;
}

/* Part by part, in order. */
static enum err run_parts(struct cuda_attention_choice *choice,
                          const struct cuda_dnn_attention *plan,
                          const struct kernel_ctx *ctx,
                          const struct attention *shape, const void *qkv,
                          const void *out, const float *lse, const void *dout,
                          void *dqkv)
{
    struct attention part = *shape;
    int64_t rows = shape->heads * shape->seq;
    int64_t width = (shape->heads + 2 * shape->kv_heads) * shape->seq;
    part.batch = key_of(shape, true).batch;
    assert(shape->batch % part.batch == 0);
    for (int64_t s = 0; s < shape->batch; s += part.batch) {
        int64_t at = s * width * shape->head_dim;
        int64_t out_at = s * rows * shape->head_dim;
        TRY(cuda_dnn_attention_backward(
            plan, choice->handle, ctx, &part, past(qkv, at), past(out, out_at),
            lse + s * rows, past(dout, out_at), (char *)dqkv + 2 * at));
    }
    return ERR_OK;
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
    return run_parts(choice, plan, ctx, shape, qkv, out, lse, dout, dqkv);
}

/* --- measuring --- */

struct timing {
    struct cuda_attention_choice *choice;
    const struct kernel_ctx *ctx;
    const struct entry *entry;
    struct attention shape;
    bool dnn;
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
static bool place(const struct key *key, void *memory, size_t bytes,
                  struct timing *timing)
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
    const struct cuda_attention_own *own = &t->choice->own;
    cudnnHandle_t handle = t->choice->handle;
    if (t->entry->key.backward != 0)
        return t->dnn
                   ? cuda_dnn_attention_backward(t->entry->plan, handle, t->ctx,
                                                 &t->shape, t->qkv, t->out,
                                                 t->lse, t->dout, t->dqkv)
                   : own->backward(t->ctx, DTYPE_BF16, &t->shape, t->qkv,
                                   t->out, t->lse, t->dout, t->dqkv);
    return t->dnn
               ? cuda_dnn_attention_forward(t->entry->plan, handle, t->ctx,
                                            &t->shape, t->qkv, t->out, t->lse)
               : own->forward(t->ctx, DTYPE_BF16, &t->shape, t->qkv, t->out,
                              t->lse);
}

static enum err measure(struct cuda_attention_choice *choice,
                        const struct kernel_ctx *ctx, struct entry *entry,
                        struct timing *timing)
{
    enum err rc = make_plan(choice, entry);
    double own_us = 0, dnn_us = 0;
    char words[96];
    if (rc == ERR_OK &&
        cuda_dnn_attention_scratch(entry->plan) > ctx->scratch_bytes)
        rc = err_set(ERR_UNSUPPORTED, "cuDNN needs %zu KiB of scratch, of %zu",
                     cuda_dnn_attention_scratch(entry->plan) >> 10,
                     ctx->scratch_bytes >> 10);
    if (rc == ERR_OK) {
        timing->dnn = true;
        rc = choice->own.time(ctx->stream, timing_run, timing, &dnn_us);
    }
    if (rc == ERR_MEMORY ||
        (rc != ERR_OK && entry->plan != NULL && rc != ERR_UNSUPPORTED))
        return rc;
    if (rc != ERR_OK) {
        /* there is no engine for it, or cuDNN is not what it was built for */
        TRY(cuda_fallback("%s: %s", words_of(&entry->key, words), err_text()));
    } else {
        timing->dnn = false;
        TRY(choice->own.time(ctx->stream, timing_run, timing, &own_us));
        entry->dnn = dnn_us < own_us;
        log_info("%s: cuDNN %.0f us, own %.0f us", words_of(&entry->key, words),
                 dnn_us, own_us);
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
        if (!place(&entry->key, memory, bytes, &timing)) {
            TRY(cuda_fallback("%s does not fit into the %zu MiB that are left "
                              "to measure in",
                              words_of(&entry->key, words), bytes >> 20));
            entry->chosen = true;
            continue;
        }
        timing.shape = shape_of(&entry->key, timing.slopes);
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
    for (int i = 0; i < choice->count; i++) {
        const struct entry *e = &choice->entries[i];
        const struct key *k = &e->key;
        fprintf(file,
                "%s %s %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64 " %" PRId64
                " %s",
                e->dnn ? "cudnn" : "own", k->backward ? "backward" : "forward",
                k->batch, k->seq, k->heads, k->kv_heads, k->head_dim,
                k->alibi ? "alibi" : "plain");
        if (k->slices > 1)
            fprintf(file, " %" PRId64, k->slices);
        fputc('\n', file);
    }
    if (fclose(file) == 0)
        return ERR_OK;
    free(*text);
    *text = NULL;
    return err_set(ERR_MEMORY, "no memory for the choice of attention");
}

static bool read_line(const char *line, struct entry *entry)
{
    char who[8], way[16], bias[8];
    struct key *k = &entry->key;
    int end = 0;
    *entry = (struct entry){ .chosen = true };
    if (sscanf(line,
               "%7s %15s %" SCNd64 " %" SCNd64 " %" SCNd64 " %" SCNd64
               " %" SCNd64 " %7s%n",
               who, way, &k->batch, &k->seq, &k->heads, &k->kv_heads,
               &k->head_dim, bias, &end) != 8)
        return false;
    k->slices = 1;
    if (line[end] == ' ') {
        int more = 0;
        if (sscanf(line + end, "%" SCNd64 "%n", &k->slices, &more) != 1 ||
            k->slices < 2 || k->kv_heads % k->slices != 0 || k->batch != 1)
            return false;
        end += more;
    }
    if (line[end] != '\n')
        return false;
    entry->dnn = strcmp(who, "cudnn") == 0;
    k->backward = strcmp(way, "backward") == 0;
    k->alibi = strcmp(bias, "alibi") == 0;
    return (entry->dnn || strcmp(who, "own") == 0) &&
           (k->backward || strcmp(way, "forward") == 0) &&
           (k->alibi || strcmp(bias, "plain") == 0) && k->batch > 0 &&
           k->seq > 0 && k->heads > 0 && k->kv_heads > 0 && k->head_dim > 0;
}

enum err cuda_attention_choice_read(struct cuda_attention_choice *choice,
                                    const char *text)
{
    struct entry entries[SHAPES_MAX];
    size_t version = 0;
    int count = 0;
    bool dnn = false;
    const char *line = strchr(text, '\n');
    if (line == NULL || sscanf(text, "cudnn %zu", &version) != 1)
        return err_set(ERR_DATA, "the choice of attention does not begin with "
                                 "cuDNN's version: the text is damaged");
    for (line++; *line != '\0'; line = strchr(line, '\n') + 1) {
        if (count == SHAPES_MAX || !read_line(line, &entries[count]))
            return err_set(ERR_DATA,
                           "the choice of attention is damaged in line %d",
                           count + 2);
        dnn |= entries[count++].dnn;
    }
    if (dnn && version != choice->library->version())
        return err_set(ERR_UNSUPPORTED,
                       "the run's attention is that of cuDNN %zu, here is %zu: "
                       "load that version, its bits are others",
                       version, choice->library->version());
    for (int i = 0; i < count; i++) {
        struct entry *entry = entry_of(choice, &entries[i].key);
        if (entry == NULL)
            continue;
        entry->chosen = true;
        entry->dnn = entries[i].dnn;
    }
    choice->settled = true;
    return ERR_OK;
}
