/* What the tests of the model share: a small configuration with weights and a
 * leaf, and access to them that watches the protocol. */
#pragma once

#include "src/base/rng.h"
#include "src/model/model.h"
#include "tests/tap.h"

/* Styles of a configuration that is completed by fixture_complete(). */
#define FOUNDRY .bias = true, .tied = true
#define DROPOUTS                                                               \
    .dropout_embedding = 0.2, .dropout_attention = 0.3, .dropout_residual = 0.1
#define LLAMA                                                                  \
    .positions = POSITIONS_ROPE, .norm = MODEL_NORM_RMSNORM, .ffn = FFN_GLU,   \
    .activation = MODEL_SILU, .n_kv_heads = 2
#define GEMMA3                                                                 \
    .positions = POSITIONS_ROPE, .norm = MODEL_NORM_RMSNORM, .ffn = FFN_GLU,   \
    .activation = MODEL_GELU_TANH, .n_kv_heads = 2, .head_dim = 24,            \
    .norm_place = NORM_AROUND, .norm_plus_one = true, .qk_norm = QK_NORM_HEAD, \
    .tied = true, .embedding_scale = 4.53, .attention_scale = 0.3
#define GEMMA3_WINDOWS                                                         \
    GEMMA3, .window = 3, .window_interval = 2, .window_rope_theta = 300,       \
            .rope_scaling = ROPE_SCALING_LINEAR, .rope_factor = 4
#define DBRX                                                                   \
    .positions = POSITIONS_ROPE, .n_kv_heads = 2, .clip_qkv = 0.6,             \
    .ffn = FFN_GLU, .activation = MODEL_SILU, .experts = 8,                    \
    .experts_top_k = 2, .router_normalize = 1.0

#define FIXTURE_TOKENS_MAX 1024
#define FIXTURE_BLOCKS_MAX 32
#define FIXTURE_SEED 23

struct model_fixture {
    struct model_config config;
    struct params *params;
    int64_t all;     /* elements: those that train, then the frozen ones */
    float *weights;  /* [all] */
    float *gradient; /* [params->elements] */
    int32_t tokens[FIXTURE_TOKENS_MAX];
    int32_t labels[FIXTURE_TOKENS_MAX];
    int32_t documents[FIXTURE_TOKENS_MAX];
    struct leaf leaf;
    struct lora_options lora;
    /* what the model did with its parameters */
    int held[FIXTURE_BLOCKS_MAX]; /* gathered and not released */
    int done[FIXTURE_BLOCKS_MAX]; /* calls of gradient_done */
    bool misused;                 /* released too often, gradient after done */
    int calls;
    int fail_at; /* number of the call that fails; 0: none */
};

static inline enum err fixture_call(struct model_fixture *f)
{
    return ++f->calls == f->fail_at ? err_set(ERR_COMM, "the call that fails")
                                    : ERR_OK;
}

static inline enum err fixture_gather(void *arg, int block,
                                      const void **weights)
{
    struct model_fixture *f = arg;
    enum err rc = fixture_call(f);
    if (rc != ERR_OK)
        return rc;
    f->held[block]++;
    *weights = f->weights + f->params->blocks[block].offset;
    return ERR_OK;
}

static inline enum err fixture_release(void *arg, int block)
{
    struct model_fixture *f = arg;
    f->misused |= --f->held[block] < 0;
    return fixture_call(f);
}

static inline enum err fixture_gradient(void *arg, int block, float **gradient)
{
    struct model_fixture *f = arg;
    f->misused |= f->done[block] > 0;
    *gradient = f->gradient + f->params->blocks[block].offset;
    return fixture_call(f);
}

static inline enum err fixture_done(void *arg, int block)
{
    struct model_fixture *f = arg;
    f->done[block]++;
    return fixture_call(f);
}

static inline enum err fixture_frozen(void *arg, int block,
                                      const void **weights)
{
    struct model_fixture *f = arg;
    *weights = f->weights + f->params->elements +
               f->params->frozen->blocks[block].offset;
    return fixture_call(f);
}

static inline struct param_access fixture_access(struct model_fixture *f)
{
    return (struct param_access){ .arg = f,
                                  .gather = fixture_gather,
                                  .release = fixture_release,
                                  .frozen = fixture_frozen,
                                  .gradient = fixture_gradient,
                                  .gradient_done = fixture_done };
}

static inline size_t fixture_bytes(const struct model_fixture *f)
{
    return (size_t)f->params->elements * sizeof(float);
}

/* What a table of configurations leaves 0 becomes small. */
static inline void fixture_complete(struct model_config *c)
{
    const struct model_config small = { .d_model = 32,
                                        .n_heads = 4,
                                        .n_layers = 2,
                                        .max_seq_len = 8,
                                        .ffn_width = 48 };
    c->d_model = c->d_model > 0 ? c->d_model : small.d_model;
    c->n_heads = c->n_heads > 0 ? c->n_heads : small.n_heads;
    c->n_kv_heads = c->n_kv_heads > 0 ? c->n_kv_heads : c->n_heads;
    c->n_layers = c->n_layers > 0 ? c->n_layers : small.n_layers;
    c->max_seq_len = c->max_seq_len > 0 ? c->max_seq_len : small.max_seq_len;
    c->ffn_width = c->ffn_width > 0 ? c->ffn_width : small.ffn_width;
    c->logit_scale = c->logit_scale > 0.0 ? c->logit_scale : 1.0;
    if (c->embedding_scale == 0.0)
        c->embedding_scale = 1.0;
    c->residual_scale = c->residual_scale > 0.0 ? c->residual_scale : 1.0;
    c->vocab_size = 37;
    c->rope_theta = 1e4;
    c->alibi_bias_max = 8.0;
    c->norm_eps = 1e-5;
}

/* Every tensor has random values, norms and biases too; padding is 0. */
static inline void fixture_fill_table(const struct params *params,
                                      float *weights)
{
    params_init(params, 17, 0, params->elements, weights);
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        for (int64_t i = 0; i < param->numel; i++)
            weights[param->offset + i] +=
                0.1f * (float)rng_normal(3, (uint64_t)p, (uint64_t)i);
    }
}

static inline void fixture_fill(struct model_fixture *f)
{
    fixture_fill_table(f->params, f->weights);
    if (f->params->frozen != NULL)
        fixture_fill_table(f->params->frozen, f->weights + f->params->elements);
}

/* The same for a configuration without tuning: drawing costs more than most tests
 * do with it, and the next fixture is often like the last one. */
static inline void fixture_fill_again(struct model_fixture *f)
{
    static struct model_config last;
    static float *drawn;
    if (drawn != NULL && memcmp(&last, &f->config, sizeof last) == 0) {
        memcpy(f->weights, drawn, (size_t)f->all * sizeof *drawn);
        return;
    }
    fixture_fill(f);
    memcpy(&last, &f->config, sizeof last);
    drawn = realloc(drawn, (size_t)f->all * sizeof *drawn);
    if (drawn == NULL)
        abort();
    memcpy(drawn, f->weights, (size_t)f->all * sizeof *drawn);
}

/* samples * seq_len <= FIXTURE_TOKENS_MAX; packed: with sequence ids. */
static inline void fixture_leaf(struct model_fixture *f, int64_t samples,
                                int64_t seq_len, bool packed)
{
    for (int64_t i = 0; i < samples * seq_len; i++) {
        uint64_t vocab = (uint64_t)f->config.vocab_size;
        f->tokens[i] = (int32_t)(rng_u64(1, 1, (uint64_t)i) % vocab);
        f->labels[i] = (int32_t)(rng_u64(1, 2, (uint64_t)i) % vocab);
        if (i % 5 == 4)
            f->labels[i] = -100;
        f->documents[i] =
            i < seq_len ? i % seq_len >= 3 : (int32_t)(i % seq_len / 2);
    }
    f->leaf = (struct leaf){ .samples = samples,
                             .seq_len = seq_len,
                             .tokens = f->tokens,
                             .labels = f->labels,
                             .sequence_ids = packed ? f->documents : NULL,
                             .first_sample = 5 };
}

/* For a configuration out of a table; the leaf is 2 samples of 7 tokens.
 * tuning may be NULL. */
static inline struct model_fixture *
fixture_create_tuned(struct model_config config,
                     const struct params_tuning *tuning, bool packed)
{
    struct model_fixture *f = calloc(1, sizeof *f);
    if (f == NULL)
        abort();
    fixture_complete(&config);
    f->config = config;
    if (model_config_check(&config) != ERR_OK ||
        params_create_tuned(&config, tuning, &f->params) != ERR_OK ||
        f->params->block_count > FIXTURE_BLOCKS_MAX)
        abort();
    f->all = f->params->elements;
    if (f->params->frozen != NULL)
        f->all += f->params->frozen->elements;
    f->weights = aligned_alloc(64, (size_t)f->all * sizeof(float));
    f->gradient = aligned_alloc(64, fixture_bytes(f));
    if (f->weights == NULL || f->gradient == NULL)
        abort();
    if (tuning == NULL)
        fixture_fill_again(f);
    else
        fixture_fill(f);
    fixture_leaf(f, 2, 7, packed);
    return f;
}

static inline struct model_fixture *fixture_create(struct model_config config,
                                                   bool packed)
{
    return fixture_create_tuned(config, NULL, packed);
}

static inline void fixture_destroy(struct model_fixture *f)
{
    params_destroy(f->params);
    free(f->weights);
    free(f->gradient);
    free(f);
}

/* Room for more than the leaf, so that strides are not taken from it. */
static inline struct model_options
fixture_options(const struct model_fixture *f, int threads)
{
    return (struct model_options){ .threads = threads,
                                   .samples = f->leaf.samples + 1,
                                   .seq_len = f->config.max_seq_len,
                                   .seed = FIXTURE_SEED,
                                   .frozen = f->params->frozen != NULL,
                                   .lora = f->lora };
}

/* One leaf of training into a gradient of zeros; false after an error. */
static inline bool fixture_train(struct model_fixture *f, struct model *model,
                                 struct leaf_loss *loss)
{
    struct param_access access = fixture_access(f);
    memset(f->gradient, 0, fixture_bytes(f));
    memset(f->done, 0, sizeof f->done);
    return model_train_leaf(model, &access, &f->leaf, loss) == ERR_OK;
}

/* The same with a model of its own. */
static inline bool fixture_run(struct model_fixture *f,
                               const struct kernels *kernels,
                               const struct model_options *options,
                               struct leaf_loss *loss)
{
    struct model *model = NULL;
    bool fine = model_create(&f->config, f->params, kernels, options, &model) ==
                    ERR_OK &&
                fixture_train(f, model, loss);
    if (!fine)
        tap_note("%s", err_text());
    model_destroy(model);
    return fine;
}

/* |got - want| / |want| of a tensor, L2; small tensors' by `least`. */
static inline double fixture_distance(const struct param *param,
                                      const float *got, const float *want,
                                      double least)
{
    double off = 0.0, length = 0.0;
    for (int64_t i = param->offset; i < param->offset + param->numel; i++) {
        double difference = (double)got[i] - (double)want[i];
        off += difference * difference;
        length += (double)want[i] * (double)want[i];
    }
    return isnan(off) ? INFINITY : sqrt(off) / fmax(sqrt(length), least);
}

/* What the model has counted, to out[n_layers * experts]. */
static inline enum err fixture_counts(struct model *model,
                                      const struct kernels *kernels,
                                      const struct model_config *config,
                                      int64_t *out)
{
    TRY(model_expert_counts_fetch(model));
    TRY(kernels->memory->wait(model_ctx(model)->stream));
    for (int64_t i = 0; i < config->n_layers * config->experts; i++)
        out[i] = model_expert_counts(model)[i];
    return ERR_OK;
}

static inline bool fixture_same_loss(struct leaf_loss a, struct leaf_loss b)
{
    return a.cross_entropy == b.cross_entropy && a.balance == b.balance;
}
