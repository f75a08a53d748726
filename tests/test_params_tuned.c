/* Tables of which some is frozen and adapters: what is in which, fresh values
 * as those of the whole model, and settings that are refused. */
#include "src/model/params.h"

#include "kernels/kernels.h"
#include "src/base/globs.h"
#include "tests/tap.h"

static struct model_config config_of(const char *preset)
{
    struct model_config config;
    if (model_config_preset(preset, &config) != ERR_OK)
        abort();
    config.n_layers = 3;
    config.vocab_size = 100;
    return config;
}

static const struct param *find(const struct params *params, const char *name)
{
    for (int i = 0; params != NULL && i < params->count; i++)
        if (strcmp(params->list[i].name, name) == 0)
            return &params->list[i];
    return NULL;
}

/* --- globs --- */

static void test_globs(void)
{
    static const struct {
        const char *globs, *name;
        bool matches;
    } cases[] = {
        { "", "a", false },
        { "   ", "a", false },
        { "a", "a", true },
        { "b a", "a", true },
        { "\tb  a ", "a", true },
        { "a*", "a/b.c", true },
        { "a", "ab", false },
        { "*.[01].*", "x.1.y", true },
        { "*.[01].*", "x.2.y", false },
        { "[", "x", false },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++)
        tap_ok(globs_match(cases[i].globs, cases[i].name) == cases[i].matches,
               "\"%s\" and \"%s\"", cases[i].globs, cases[i].name);
    char lengthy[2 * GLOBS_GLOB_MAX];
    memset(lengthy, '*', sizeof lengthy - 1);
    lengthy[sizeof lengthy - 1] = '\0';
    tap_ok(!globs_match(lengthy, "a"), "a glob that is too long");
}

/* --- tables --- */

/* Every tensor of the whole model is in one of the two, at its place in the
 * block, with the values of the whole model. */
static bool is_parted(const struct params *whole, const struct params *params)
{
    const struct params *tables[] = { params, params->frozen };
    int found = 0, extra = 0;
    bool fine = true;
    float *all = calloc((size_t)whole->elements, sizeof *all);
    if (all == NULL)
        abort();
    params_init(whole, 17, 0, whole->elements, all);
    for (int t = 0; t < 2 && tables[t] != NULL; t++) {
        float *part = calloc((size_t)tables[t]->elements + 1, sizeof *part);
        if (part == NULL)
            abort();
        params_init(tables[t], 17, 0, tables[t]->elements, part);
        fine &= tables[t]->elements % KERNEL_CHUNK == 0;
        fine &= tables[t]->block_count == whole->block_count;
        for (int i = 0; i < tables[t]->count; i++) {
            const struct param *p = &tables[t]->list[i];
            const struct param *w = find(whole, p->name);
            const struct param_block *b = &tables[t]->blocks[p->block];
            fine &= b->offset + b->place[p->role] == p->offset &&
                    p->offset + p->numel <= b->offset + b->elements;
            found += w != NULL;
            extra += w == NULL;
            fine &=
                w == NULL || (w->numel == p->numel && w->block == p->block &&
                              memcmp(all + w->offset, part + p->offset,
                                     (size_t)p->numel * sizeof *part) == 0);
            fine &= w != NULL || p->role >= PARAM_LORA;
        }
        free(part);
    }
    free(all);
    tap_note("%d of %d tensors, %d of adapters", found, whole->count, extra);
    return fine && found == whole->count;
}

static void test_parts(void)
{
    static const struct {
        const char *preset;
        struct params_tuning tuning;
        const char *trains, *rests; /* names, or NULL */
        int lowest, lowest_layer;
    } cases[] = {
        { "mpt-tiny", TUPLE("", "", 0), "transformer.wte.weight", NULL, 0, 0 },
        { "mpt-tiny", TUPLE("transformer.w?e.*", "", 0),
          "transformer.norm_f.weight", "transformer.wpe.weight", 1, 0 },
        { "mpt-tiny", TUPLE("*.w?e.* *.0.* *.1.*", "", 0),
          "transformer.blocks.2.norm_1.weight",
          "transformer.blocks.1.ffn.down_proj.bias", 3, 2 },
        { "llama-tiny", TUPLE("*blocks* *.wte.*", "", 0), "lm_head.weight",
          "transformer.wte.weight", 4, 3 },
        { "llama-tiny", TUPLE("", "q_proj", 8),
          "transformer.blocks.0.attn.q_proj.lora_A.weight", "lm_head.weight", 1,
          0 },
        { "llama-tiny", TUPLE("", "*.blocks.2.ffn.* *.1.attn.out_proj", 8),
          "transformer.blocks.2.ffn.gate_proj.lora_B.weight",
          "transformer.blocks.2.ffn.gate_proj.weight", 2, 1 },
        { "moe-tiny", TUPLE("", "*", 2),
          "transformer.blocks.1.attn.v_proj.lora_B.weight",
          "transformer.blocks.1.ffn.experts.mlp.w1", 1, 0 },
        { "llama-tiny", TUPLE("*attn*", "o_proj", 2),
          "transformer.blocks.2.attn.out_proj.lora_B.weight",
          "transformer.blocks.2.attn.out_proj.weight", 0, 0 },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config = config_of(cases[i].preset);
        struct params *whole = NULL, *params = NULL;
        bool made =
            params_create(&config, &whole) == ERR_OK &&
            params_create_tuned(&config, &cases[i].tuning, &params) == ERR_OK;
        if (!tap_ok(made && is_parted(whole, params), "%s, freeze \"%s\", %s",
                    cases[i].preset, cases[i].tuning.freeze,
                    cases[i].tuning.targets))
            tap_note("%s", err_text());
        if (!made)
            continue;
        tap_ok(find(params, cases[i].trains) != NULL, "%s trains",
               cases[i].trains);
        if (cases[i].rests != NULL)
            tap_ok(find(params->frozen, cases[i].rests) != NULL &&
                       find(params, cases[i].rests) == NULL,
                   "%s does not", cases[i].rests);
        else
            tap_ok(params->frozen == NULL, "nothing is frozen");
        tap_is_int(params_lowest(params), cases[i].lowest, "lowest block");
        tap_is_int(params_lowest_layer(params), cases[i].lowest_layer,
                   "lowest layer");
        params_destroy(whole);
        params_destroy(params);
    }
}

/* A is uniform within 1 / sqrt(in), B is 0; which layers have them. */
static void test_adapters(void)
{
    static const struct {
        const char *name;
        int64_t shape[2];
    } adapters[] = {
        { "attn.q_proj.lora_A.weight", { 4, 128 } },
        { "attn.q_proj.lora_B.weight", { 128, 4 } },
        { "attn.k_proj.lora_B.weight", { 64, 4 } },
        { "attn.v_proj.lora_B.weight", { 64, 4 } },
        { "attn.out_proj.lora_A.weight", { 4, 128 } },
        { "ffn.up_proj.lora_A.weight", { 4, 128 } },
        { "ffn.down_proj.lora_B.weight", { 128, 4 } },
    };
    struct params_tuning tuning = { "", "*", 4 };
    struct model_config config = config_of("llama-tiny");
    struct params *params = NULL;
    if (params_create_tuned(&config, &tuning, &params) != ERR_OK)
        abort();
    float *values = malloc((size_t)params->elements * sizeof *values);
    if (values == NULL)
        abort();
    params_init(params, 17, 0, params->elements, values);
    tap_is_int(params->count, 3 * 7 * 2, "adapters of all linear layers");
    tap_is_int(params->lora_rank, 4, "their rank");
    for (size_t i = 0; i < sizeof adapters / sizeof adapters[0]; i++) {
        char name[128];
        snprintf(name, sizeof name, "transformer.blocks.1.%s",
                 adapters[i].name);
        const struct param *p = find(params, name);
        if (!tap_ok(p != NULL && p->shape[0] == adapters[i].shape[0] &&
                        p->shape[1] == adapters[i].shape[1],
                    "%s [%lld, %lld]", name, (long long)adapters[i].shape[0],
                    (long long)adapters[i].shape[1]))
            continue;
        bool b = strstr(name, "lora_B") != NULL;
        double bound = b ? 0.0 : 1.0 / sqrt((double)p->shape[1]);
        double largest = 0.0, sum = 0.0;
        for (int64_t j = 0; j < p->numel; j++) {
            largest = fmax(largest, fabs((double)values[p->offset + j]));
            sum += (double)values[p->offset + j];
        }
        tap_ok(largest <= bound && largest >= 0.97 * bound &&
                   fabs(sum) <= 5.0 * bound * sqrt((double)p->numel / 3.0),
               "%s: within %g", name, bound);
    }
    free(values);
    params_destroy(params);
}

/* --- what is refused --- */

static void test_refused(void)
{
    static const struct {
        const char *preset;
        struct params_tuning tuning;
        const char *text;
    } cases[] = {
        { "mpt-tiny", { "*", "", 0 }, "nothing is left to train" },
        { "mpt-tiny", { "*norm* nope.*", "", 0 }, "nope.*" },
        { "mpt-tiny", { "*gate*", "", 0 }, "*gate*" },
        { "llama-tiny", { "*.gate_proj.*", "", 0 }, "freeze both" },
        { "llama-tiny", { "*.1.ffn.up_proj.weight", "", 0 }, "freeze both" },
        { "mpt-tiny", { "transformer.wte.weight", "", 0 }, "wpe" },
        { "mpt-tiny", { "", "", 4 }, "lora.targets is empty" },
        { "mpt-tiny", { "", "  ", 4 }, "lora.targets is empty" },
        { "mpt-tiny", { "", "q_proj gate_proj", 4 }, "gate_proj" },
        { "llama-tiny", { "", "Wqkv", 4 }, "q_proj, k_proj" },
        { "llama-tiny", { "", "*.blocks.3.attn.q_proj", 4 }, "blocks.3" },
        { "moe-tiny", { "", "q_proj up_proj", 4 }, "experts" },
        { "moe-tiny", { "", "*.ffn.*", 4 }, "experts" },
        { "moe-tiny", { "", "*.mlp.w1", 4 }, "experts" },
    };
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_config config = config_of(cases[i].preset);
        struct params *params = NULL;
        enum err rc = params_create_tuned(&config, &cases[i].tuning, &params);
        if (!tap_ok(rc == ERR_USAGE && params == NULL &&
                        strstr(err_text(), cases[i].text) != NULL,
                    "%s, freeze \"%s\", targets \"%s\": refused",
                    cases[i].preset, cases[i].tuning.freeze,
                    cases[i].tuning.targets))
            tap_note("%s", rc != ERR_OK ? err_text() : "taken");
        params_destroy(params);
    }
}

int main(void)
{
    test_globs();
    test_parts();
    test_adapters();
    test_refused();
    return tap_done();
}
