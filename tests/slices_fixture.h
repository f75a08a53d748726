/* Models whose every element is known, and what is asked of whatever they were
 * written as: any interval is read as it is, and it is cut again into the slices of the
 * names. */
#pragma once

#include "src/base/rng.h"
#include "src/formats/hf/hf_names.h"
#include "src/formats/weights.h"
#include "tests/data_fixture.h"

#define SEED 5
#define VOCAB 48

struct model {
    struct model_config config;
    struct params *params;
    struct hf_names *names;
    float *flat;
};

static inline struct model_config shape(enum arch arch)
{
    struct model_config c;
    fixture_need(model_config_preset("mpt-tiny", &c));
    c.d_model = 64;
    c.n_heads = 4;
    c.n_kv_heads = 4;
    c.n_layers = 2;
    c.vocab_size = VOCAB;
    c.max_seq_len = 32;
    c.ffn_width = 256;
    c.dropout_attention = c.dropout_residual = c.dropout_embedding = 0;
    c.positions = POSITIONS_LEARNED;
    c.tied = true;
    if (arch == ARCH_GPT2) {
        c.ffn_width = 96;
        return c;
    }
    c.bias = false;
    c.positions = POSITIONS_ALIBI;
    if (arch == ARCH_MPT)
        return c;
    c.positions = POSITIONS_ROPE;
    c.qkv_bias = arch == ARCH_QWEN2;
    c.window = arch == ARCH_MISTRAL || arch == ARCH_OLMO3 ? 8 : 0;
    c.window_interval = arch == ARCH_OLMO3 ? 2 : 0;
    c.no_rope_interval = arch == ARCH_SMOLLM3 ? 2 : 0;
    c.n_kv_heads = 2;
    c.ffn = FFN_GLU;
    c.activation = MODEL_SILU;
    c.ffn_width = 80;
    /* the embedding is the table's first tensor */
    c.tied = arch == ARCH_QWEN2 || arch == ARCH_PHI3 || arch == ARCH_OLMO2 ||
             arch == ARCH_OLMO3 || arch == ARCH_GEMMA3;
    c.norm_place = arch == ARCH_GEMMA3 ? NORM_AROUND : NORM_BEFORE;
    c.norm_plus_one = arch == ARCH_GEMMA3;
    if (arch == ARCH_QWEN3 || arch == ARCH_QWEN3_MOE || arch == ARCH_GEMMA3) {
        c.qk_norm = QK_NORM_HEAD;
        c.head_dim = 24;
    }
    if (arch == ARCH_OLMO2 || arch == ARCH_OLMO3) {
        c.qk_norm = QK_NORM_FULL;
        c.norm_place = NORM_AFTER;
    }
    if (arch == ARCH_MIXTRAL || arch == ARCH_DBRX || arch == ARCH_QWEN3_MOE) {
        c.experts = 4;
        c.experts_top_k = 2;
        c.router_normalize = 1;
    }
    if (arch != ARCH_DBRX)
        c.norm = MODEL_NORM_RMSNORM;
    return c;
}

/* Values of the configuration, and the slices that they have under these names. */
static inline void make_model(struct model *m, const struct arch_form *form)
{
    fixture_need(params_create(&m->config, &m->params));
    m->flat = calloc((size_t)m->params->elements, sizeof *m->flat);
    for (int p = 0; p < m->params->count; p++) {
        const struct param *param = &m->params->list[p];
        rng_fill_normal(SEED, rng_stream(param->name), 0, param->numel, 1.0f,
                        m->flat + param->offset);
    }
    fixture_need(
        hf_names_create(form, &m->config, m->params, VOCAB, &m->names));
}

static inline void free_model(struct model *m)
{
    hf_names_destroy(m->names);
    params_destroy(m->params);
    free(m->flat);
    *m = (struct model){ .names = NULL };
}

static inline int64_t slice_numel(const struct hf_slice *slice)
{
    return slice->dims == 2
               ? slice->rows * slice->shape[slice->transposed ? 0 : 1]
               : slice->rows;
}

/* Element number i of a slice's tensor, one by one from what headers say. */
static inline float theirs(const struct model *m, const struct hf_slice *slice,
                           int64_t i)
{
    const struct param *param = &m->params->list[slice->param];
    int64_t cols = param->dims == 2 ? param->shape[1] : 1;
    int64_t row = slice->transposed ? i % slice->rows : i / cols;
    int64_t col = slice->transposed ? i / slice->rows : i % cols;
    if (slice->pairs > 0) {
        int64_t half = slice->pairs / 2, in = row % slice->pairs;
        row += in % 2 * half + in / 2 - in;
    }
    return m->flat[param->offset + (slice->row + row) * cols + col];
}

/* All of it, and many intervals of it, are the values. */
static inline bool reads(struct weights *weights, const struct model *m)
{
    float *got = calloc((size_t)m->params->elements, sizeof *got);
    bool same = weights_match(weights, m->params, NULL, "") == ERR_OK;
    for (int i = 0; i < 300 && same; i++) {
        uint64_t n = (uint64_t)m->params->elements;
        int64_t begin = (int64_t)(rng_uniform(1, 2, 2 * i) * (double)n);
        int64_t width = (int64_t)(rng_uniform(1, 2, 2 * i + 1) *
                                  (i % 3 == 0 ? 20.0 : (double)n));
        int64_t end = begin + 1 + width;
        end = end > (int64_t)n || i == 0 ? (int64_t)n : end;
        begin = i == 0 ? 0 : begin;
        same =
            weights_fill(weights, m->params, NULL, begin, end, got) == ERR_OK &&
            memcmp(got, m->flat + begin, (size_t)(end - begin) * sizeof *got) ==
                0;
    }
    free(got);
    return same;
}

struct sunk {
    const struct model *m;
    const struct hf_slice *slice;
    int64_t at;
    bool same;
};

static inline enum err sink(void *arg, const float *data, int64_t count)
{
    struct sunk *sunk = arg;
    for (int64_t i = 0; i < count; i++)
        sunk->same =
            sunk->same && data[i] == theirs(sunk->m, sunk->slice, sunk->at + i);
    sunk->at += count;
    return ERR_OK;
}

/* Cut again into the slices of `names`. */
static inline bool cuts(struct weights *weights, const struct model *m)
{
    bool same = true;
    float *buffer = malloc((size_t)WEIGHTS_CUT_FLOATS * sizeof *buffer);
    for (int i = 0; i < m->names->count; i++) {
        struct sunk sunk = { m, &m->names->list[i], 0, true };
        fixture_need(
            weights_cut(weights, m->params, sunk.slice, buffer, sink, &sunk));
        same = same && sunk.same && sunk.at == slice_numel(sunk.slice);
    }
    free(buffer);
    return same;
}

/* The slice of this name. */
static inline struct hf_slice *slice_of(const struct model *m, const char *name)
{
    for (int i = 0; i < m->names->count; i++)
        if (strcmp(m->names->list[i].name, name) == 0)
            return &m->names->list[i];
    abort();
}

/* A tensor that is no parameter of the configuration and has the name of one of
 * ours is neither matched nor read; the error has `want`. */
static inline void is_no_parameter(const char *path, const struct model *m,
                                   const char *name, const char *want,
                                   const char *what)
{
    struct weights *weights = NULL;
    float value = 0;
    fixture_need(weights_open(path, &weights));
    enum err rc = weights_match(weights, m->params, NULL, "");
    if (!tap_ok(rc == ERR_DATA && strstr(err_text(), want) != NULL,
                "%s is no match", what))
        tap_note("%s: %s", err_name(rc), err_text());
    tap_ok(weights_match(weights, m->params, name, "") == ERR_OK,
           "... unless it is ignored");
    for (int i = 0; i < m->params->count; i++)
        if (strcmp(m->params->list[i].name, name) == 0)
            tap_ok(weights_read(weights, &m->params->list[i], 0, 1, &value) ==
                       ERR_DATA,
                   "... and is not read: %s", err_text());
    weights_close(weights);
}
