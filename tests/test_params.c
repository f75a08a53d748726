/* Fresh values of the parameters: their spread by kind of initialization, and
 * that they do not depend on who fills which interval. */
#include "src/model/params.h"

#include "tests/tap.h"

#define D 128
#define KV 64 /* width of the keys */
#define F 512
#define VOCAB 320
#define LAYERS 8

static struct model_config config_of(enum model_init init)
{
    return (struct model_config){ .d_model = D,
                                  .n_heads = 4,
                                  .n_kv_heads = 2,
                                  .n_layers = LAYERS,
                                  .vocab_size = VOCAB,
                                  .max_seq_len = 128,
                                  .ffn_width = F,
                                  .bias = true,
                                  .init = init,
                                  .init_std = 0.03 };
}

static struct params *create(struct model_config config, float **w)
{
    struct params *params = NULL;
    if (params_create(&config, &params) != ERR_OK ||
        (*w = malloc((size_t)params->elements * sizeof **w)) == NULL)
        abort();
    memset(*w, 0xff, (size_t)params->elements * sizeof **w);
    params_init(params, 17, 0, params->elements, *w);
    return params;
}

static const struct param *find(const struct params *params, const char *name)
{
    for (int i = 0; i < params->count; i++)
        if (strcmp(params->list[i].name, name) == 0)
            return &params->list[i];
    abort();
}

/* n values have mean 0 and this standard deviation, within 5 of their own; with
 * `uniform` they fill (-sqrt(3) std, sqrt(3) std). */
static bool spread(const float *x, int64_t n, double std, bool uniform)
{
    double sum = 0.0, squares = 0.0, largest = 0.0;
    for (int64_t i = 0; i < n; i++) {
        sum += (double)x[i];
        squares += (double)x[i] * (double)x[i];
        largest = fmax(largest, fabs((double)x[i]));
    }
    double root = sqrt((double)n);
    double edge = sqrt(3.0) * std;
    bool fine = fabs(sum / (double)n) < 5.0 * std / root &&
                fabs(sqrt(squares / (double)n) / std - 1.0) < 4.0 / root;
    if (uniform)
        fine &= largest <= edge * 1.000001 && largest > 0.99 * edge;
    else
        fine &= largest > 2.0 * edge;
    if (!fine)
        tap_note("mean %g, std %g, largest %g; std must be %g", sum / (double)n,
                 sqrt(squares / (double)n), largest, std);
    return fine;
}

static bool tensor_spread(const struct params *params, const float *w,
                          const char *name, double std, bool uniform)
{
    const struct param *param = find(params, name);
    return spread(w + param->offset, param->numel, std, uniform);
}

static void test_kinds(void)
{
    /* standard deviations by fan-in, fan-out (and number of layers) */
    static const struct {
        const char *name;
        enum model_init init;
        double wte, queries, keys, up, down; /* down: before the division */
        double divisor;
    } cases[] = {
        { "kaiming_normal", MODEL_INIT_KAIMING_NORMAL, 0.125, 0.125, 0.125,
          0.125, 0.0625, 4.0 },
        { "kaiming_uniform", MODEL_INIT_KAIMING_UNIFORM, 0.125, 0.125, 0.125,
          0.125, 0.0625, 4.0 },
        { "xavier_normal", MODEL_INIT_XAVIER_NORMAL, 0.06681531047810609,
          0.08838834764831845, 0.10206207261596575, 0.05590169943749474,
          0.05590169943749474, 4.0 },
        { "xavier_uniform", MODEL_INIT_XAVIER_UNIFORM, 0.06681531047810609,
          0.08838834764831845, 0.10206207261596575, 0.05590169943749474,
          0.05590169943749474, 4.0 },
        { "small", MODEL_INIT_SMALL, 0.05590169943749474, 0.05590169943749474,
          0.05590169943749474, 0.05590169943749474, 0.05590169943749474, 4.0 },
        { "neox", MODEL_INIT_NEOX, 0.05590169943749474, 0.05590169943749474,
          0.05590169943749474, 0.05590169943749474, 0.05590169943749474,
          2.5298221281347035 },
        { "baseline", MODEL_INIT_BASELINE, 0.03, 0.03, 0.03, 0.03, 0.03, 4.0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        float *w = NULL;
        struct params *params = create(config_of(cases[i].init), &w);
        bool uniform = cases[i].init == MODEL_INIT_KAIMING_UNIFORM ||
                       cases[i].init == MODEL_INIT_XAVIER_UNIFORM;
        const float *qkv =
            w + find(params, "transformer.blocks.3.attn.Wqkv.weight")->offset;
        tap_ok(tensor_spread(params, w, "transformer.wte.weight", cases[i].wte,
                             uniform),
               "%s: embedding", cases[i].name);
        tap_ok(spread(qkv, D * D, cases[i].queries, uniform), "%s: queries",
               cases[i].name);
        tap_ok(spread(qkv + D * D, 2 * KV * D, cases[i].keys, uniform),
               "%s: keys and values", cases[i].name);
        tap_ok(tensor_spread(params, w,
                             "transformer.blocks.0.ffn.up_proj.weight",
                             cases[i].up, uniform),
               "%s: up", cases[i].name);
        tap_ok(tensor_spread(params, w,
                             "transformer.blocks.7.ffn.down_proj.weight",
                             cases[i].down / cases[i].divisor, uniform),
               "%s: down", cases[i].name);
        tap_ok(tensor_spread(params, w,
                             "transformer.blocks.7.attn.out_proj.weight",
                             cases[i].queries / cases[i].divisor, uniform),
               "%s: out", cases[i].name);
        free(w);
        params_destroy(params);
    }
}

/* Kaiming's gain is not for the matrix that makes the logits, the embedding
 * where they are tied. */
static void test_logits(enum model_init init, bool tied)
{
    struct model_config config = config_of(init);
    float *w = NULL;
    const char *name = tied ? "transformer.wte.weight" : "lm_head.weight";
    config.tied = tied;
    struct params *params = create(config, &w);
    tap_ok(tensor_spread(params, w, name, sqrt(PARAM_LOGIT_VARIANCE / D),
                         init == MODEL_INIT_KAIMING_UNIFORM),
           "logits: %s", name);
    free(w);
    params_destroy(params);
}

/* Experts have the spread of a layer of their own. */
static void test_experts(void)
{
    struct model_config config = config_of(MODEL_INIT_XAVIER_NORMAL);
    float *w = NULL;
    config.experts = 4;
    config.experts_top_k = 2;
    config.ffn = FFN_GLU;
    config.ffn_width = 64;
    config.init_embedding_std = 0.5;
    struct params *params = create(config, &w);
    double one = sqrt(2.0 / (128.0 + 64.0));
    tap_ok(tensor_spread(params, w, "transformer.blocks.0.ffn.experts.mlp.w1",
                         one, false),
           "experts: gate");
    tap_ok(tensor_spread(params, w, "transformer.blocks.0.ffn.experts.mlp.v1",
                         one, false),
           "experts: up");
    tap_ok(tensor_spread(params, w, "transformer.blocks.0.ffn.experts.mlp.w2",
                         one / 4.0, false),
           "experts: down");
    tap_ok(tensor_spread(params, w, "transformer.wte.weight", 0.5, false),
           "an embedding's own spread");
    tap_ok(tensor_spread(params, w, "lm_head.weight",
                         sqrt(2.0 / (VOCAB + 128.0)), false),
           "which the output layer does not have");
    free(w);
    params_destroy(params);
}

/* What is not a matrix, and padding. */
static void test_constants(const struct params *params, const float *w)
{
    bool fine = true;
    int64_t end = 0;
    for (int p = 0; p < params->count; p++) {
        const struct param *param = &params->list[p];
        int64_t begin = param->offset;
        for (int64_t i = end; i < begin; i++)
            fine &= w[i] == 0.0f;
        end = param->offset + param->numel;
        bool norm = strstr(param->name, "norm_") != NULL;
        bool bias = strstr(param->name, ".bias") != NULL;
        for (int64_t i = begin; (norm || bias) && i < end; i++)
            fine &= w[i] == (bias ? 0.0f : 1.0f);
    }
    for (int64_t i = end; i < params->elements; i++)
        fine &= w[i] == 0.0f;
    tap_ok(fine, "norms are 1, biases and padding 0");
}

static void test_intervals(void)
{
    float *whole = NULL;
    struct params *params =
        create(config_of(MODEL_INIT_XAVIER_UNIFORM), &whole);
    size_t bytes = (size_t)params->elements * sizeof(float);
    float *part = malloc(bytes);
    if (part == NULL)
        abort();
    test_constants(params, whole);
    int64_t qkv = find(params, "transformer.blocks.1.attn.Wqkv.weight")->offset;
    const int64_t cuts[] = { 0,
                             16384,
                             qkv + 5,
                             qkv + 64,
                             qkv + D * D - 1,
                             qkv + D * D + 7,
                             qkv + D * D + 9 };
    int count = sizeof cuts / sizeof cuts[0];
    bool same = true;
    for (int i = 0; i < count; i++) {
        int64_t end = i + 1 < count ? cuts[i + 1] : params->elements;
        memset(part, 0xff, bytes);
        params_init(params, 17, cuts[i], end, part);
        same &= memcmp(part, whole + cuts[i],
                       (size_t)(end - cuts[i]) * sizeof(float)) == 0;
        unsigned char beyond = 0xff;
        same &= end - cuts[i] == params->elements ||
                memcmp(part + (end - cuts[i]), &beyond, 1) == 0;
    }
    tap_ok(same, "an interval's weights do not depend on the interval");
    params_init(params, 18, 0, params->elements, part);
    tap_ok(memcmp(part, whole, 4096) != 0, "another seed, other weights");
    free(whole);
    free(part);
    params_destroy(params);
}

int main(void)
{
    test_kinds();
    test_logits(MODEL_INIT_KAIMING_NORMAL, true);
    test_logits(MODEL_INIT_KAIMING_NORMAL, false);
    test_logits(MODEL_INIT_KAIMING_UNIFORM, true);
    test_logits(MODEL_INIT_KAIMING_UNIFORM, false);
    test_experts();
    test_intervals();
    return tap_done();
}
