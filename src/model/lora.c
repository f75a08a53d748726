/* Which linear layers can have adapters, and which globs name them. What an
 * adapter computes is model_lora.c. */
#include "src/model/lora.h"

#include <fnmatch.h>
#include <stdio.h>

#include "src/base/clean.h"
#include "src/base/globs.h"

static const struct {
    const char *name;
    const char *last[2]; /* what it is called without the rest; NULL: no more */
} layers[LORA_LAYERS] = {
    [LORA_Q] = { "attn.q_proj", { "q_proj" } },
    [LORA_K] = { "attn.k_proj", { "k_proj" } },
    [LORA_V] = { "attn.v_proj", { "v_proj" } },
    [LORA_OUT] = { "attn.out_proj", { "out_proj", "o_proj" } },
    [LORA_GATE] = { "ffn.gate_proj", { "gate_proj" } },
    [LORA_UP] = { "ffn.up_proj", { "up_proj" } },
    [LORA_DOWN] = { "ffn.down_proj", { "down_proj" } },
};

bool lora_shape(const struct model_config *config, enum lora_layer layer,
                struct lora_shape *out)
{
    int64_t d = config->d_model;
    int64_t f = config->ffn_width;
    int64_t q = model_config_queries(config), kv = model_config_kv(config);
    bool gated = config->ffn == FFN_GLU;
    const struct lora_shape shapes[LORA_LAYERS] = {
        [LORA_Q] = { .in = d, .out = q, .width = q + 2 * kv },
        [LORA_K] = { .in = d, .out = kv, .at = q, .width = q + 2 * kv },
        [LORA_V] = { .in = d, .out = kv, .at = q + kv, .width = q + 2 * kv },
        [LORA_OUT] = { .in = q, .out = d, .width = d },
        [LORA_GATE] = { .in = d, .out = f, .width = 2 * f },
        [LORA_UP] = { .in = d,
                      .out = f,
                      .at = gated ? f : 0,
                      .width = gated ? 2 * f : f },
        [LORA_DOWN] = { .in = f, .out = d, .width = d },
    };
    *out = shapes[layer];
    out->name = layers[layer].name;
    if (layer >= LORA_GATE && config->experts > 0)
        return false;
    return layer != LORA_GATE || gated;
}

static bool glob_hits(const char *glob, int block, enum lora_layer layer)
{
    char name[96];
    snprintf(name, sizeof name, "transformer.blocks.%d.%s", block,
             layers[layer].name);
    bool hits = fnmatch(glob, name, 0) == 0;
    for (int i = 0; i < 2 && layers[layer].last[i] != NULL; i++)
        hits |= fnmatch(glob, layers[layer].last[i], 0) == 0;
    return hits;
}

bool lora_is_target(const char *targets, int block, enum lora_layer layer)
{
    char glob[GLOBS_GLOB_MAX];
    while (globs_next(&targets, glob))
        if (glob_hits(glob, block, layer))
            return true;
    return false;
}

static bool glob_hits_any(const struct model_config *config, const char *glob)
{
    struct lora_shape shape;
    for (int block = 0; block < config->n_layers; block++)
        for (int layer = 0; layer < LORA_LAYERS; layer++)
            if (lora_shape(config, (enum lora_layer)layer, &shape) &&
                glob_hits(glob, block, (enum lora_layer)layer))
                return true;
    return false;
}

static enum err no_such_layer(const struct model_config *config,
                              const char *glob)
{
    char names[160] = "";
    struct lora_shape shape;
    for (int layer = 0; layer < LORA_LAYERS; layer++)
        if (lora_shape(config, (enum lora_layer)layer, &shape))
            clean_join(names, sizeof names, ", ", "%s", layers[layer].last[0]);
    return err_set(ERR_USAGE,
                   "lora.targets: %s is no linear layer that can have an "
                   "adapter%s; there are %s, each with "
                   "transformer.blocks.N.attn. or .ffn. before it",
                   glob,
                   config->experts > 0
                       ? " (the model's feed-forward is experts, whose "
                         "matrices have none)"
                       : "",
                   names);
}

enum err lora_check(const struct model_config *config, const char *targets)
{
    char glob[GLOBS_GLOB_MAX];
    const char *rest = targets;
    bool any = false;
    while (globs_next(&rest, glob)) {
        any = true;
        if (!glob_hits_any(config, glob))
            return no_such_layer(config, glob);
    }
    if (!any)
        return err_set(ERR_USAGE, "lora.targets is empty: name the linear "
                                  "layers that get adapters, or leave out "
                                  "lora.rank");
    return ERR_OK;
}
