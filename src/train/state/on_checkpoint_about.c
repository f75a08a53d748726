/* Describes each tensor of a checkpoint (kind, role, axes) for readers without
 * Tessera. checkpoint/files/ckpt_view_about.c makes HDF5 attributes of it. */
#include "src/train/state/state_parts.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

#include "src/base/jsontext.h"
#include "src/model/params.h"
#include "src/parallel/optimizer/optimizer.h"

#define D "d_model"
#define F "ffn_width"
#define Q "n_heads head_dim"
#define KV "n_kv_heads head_dim"
#define QKV "(n_heads + 2 n_kv_heads) head_dim"

static const struct {
    const char *role;
    const char *axes[2]; /* NULL: a vector */
} roles[PARAM_ROLES] = {
    [PARAM_WTE] = { "token embedding", { "vocab_size", D } },
    [PARAM_WPE] = { "position embedding", { "max_seq_len", D } },
    [PARAM_NORM_1_WEIGHT] = { "scale of the norm of attention", { D } },
    [PARAM_NORM_1_BIAS] = { "shift of the norm of attention", { D } },
    [PARAM_WQKV_WEIGHT] = { "queries, keys and values", { QKV, D } },
    [PARAM_WQKV_BIAS] = { "bias of queries, keys and values", { QKV } },
    [PARAM_Q_NORM_WEIGHT] = { "scale of the norm of queries",
                              { "n_heads head_dim" } },
    [PARAM_Q_NORM_BIAS] = { "shift of the norm of queries",
                            { "n_heads head_dim" } },
    [PARAM_K_NORM_WEIGHT] = { "scale of the norm of keys",
                              { "n_kv_heads head_dim" } },
    [PARAM_K_NORM_BIAS] = { "shift of the norm of keys",
                            { "n_kv_heads head_dim" } },
    [PARAM_OUT_WEIGHT] = { "output of attention", { D, Q } },
    [PARAM_OUT_BIAS] = { "bias of attention's output", { D } },
    [PARAM_NORM_2_WEIGHT] = { "scale of the norm of the feed-forward", { D } },
    [PARAM_NORM_2_BIAS] = { "shift of the norm of the feed-forward", { D } },
    [PARAM_AFTER_1_WEIGHT] = { "scale of the norm behind attention", { D } },
    [PARAM_AFTER_1_BIAS] = { "shift of the norm behind attention", { D } },
    [PARAM_AFTER_2_WEIGHT] = { "scale of the norm behind the feed-forward",
                               { D } },
    [PARAM_AFTER_2_BIAS] = { "shift of the norm behind the feed-forward",
                             { D } },
    [PARAM_GATE_WEIGHT] = { "gate of the feed-forward", { F, D } },
    [PARAM_UP_WEIGHT] = { "input of the feed-forward", { F, D } },
    [PARAM_GATE_BIAS] = { "bias of the feed-forward's gate", { F } },
    [PARAM_UP_BIAS] = { "bias of the feed-forward's input", { F } },
    [PARAM_DOWN_WEIGHT] = { "output of the feed-forward", { D, F } },
    [PARAM_DOWN_BIAS] = { "bias of the feed-forward's output", { D } },
    [PARAM_ROUTER] = { "router to the experts", { "experts", D } },
    [PARAM_EXPERTS_GATE] = { "gates of the experts, one below the other",
                             { "experts " F, D } },
    [PARAM_EXPERTS_UP] = { "inputs of the experts, one below the other",
                           { "experts " F, D } },
    [PARAM_EXPERTS_DOWN] = { "outputs of the experts, each transposed, one "
                             "below the other",
                             { "experts " F, D } },
    [PARAM_NORM_F_WEIGHT] = { "scale of the last norm", { D } },
    [PARAM_NORM_F_BIAS] = { "shift of the last norm", { D } },
    [PARAM_LM_HEAD] = { "output layer", { "vocab_size", D } },
#define LORA(layer, text, in, out)                                             \
    [PARAM_LORA +                                                              \
        2 * (layer)] = { "A of the adapter of " text, { "lora.rank", in } },   \
            [PARAM_LORA + 2 * (layer) + 1] = { "B of the adapter of " text,    \
                                               { out, "lora.rank" } }
    LORA(LORA_Q, "queries", D, Q),
    LORA(LORA_K, "keys", D, KV),
    LORA(LORA_V, "values", D, KV),
    LORA(LORA_OUT, "attention's output", Q, D),
    LORA(LORA_GATE, "the feed-forward's gate", D, F),
    LORA(LORA_UP, "the feed-forward's input", D, F),
    LORA(LORA_DOWN, "the feed-forward's output", F, D),
#undef LORA
};

static bool is_head_norm(const struct model_config *config, int role)
{
    return config->qk_norm == QK_NORM_HEAD && role >= PARAM_Q_NORM_WEIGHT &&
           role <= PARAM_K_NORM_BIAS;
}

static json_t *about_param(const struct model_config *config,
                           const struct param *param)
{
    assert((int)param->role < PARAM_ROLES && roles[param->role].role != NULL);
    const char *role = roles[param->role].role;
    const char *const *axes = roles[param->role].axes;
    if (param->role == PARAM_WTE && config->tied)
        role = "token embedding and output layer";
    if (is_head_norm(config, (int)param->role))
        return json_pack("{s:s, s:[s]}", "role", role, "axes", "head_dim");
    return json_pack("{s:s, s:[s, s*]}", "role", role, "axes", axes[0],
                     axes[1]);
}

/* Describes each tensor once for all layers, which are alike: a star stands for
 * the first one's number. */
json_t *on_checkpoint_about_params(const struct model_config *config,
                                   const struct params *params)
{
    json_t *about = json_object();
    for (int i = 0; i < params->count; i++) {
        const struct param *param = &params->list[i];
        enum param_block_kind kind = params->blocks[param->block].kind;
        char name[sizeof param->name + 1];
        snprintf(name, sizeof name, "%s", param->name);
        if (kind == PARAM_BLOCK_LAYER || kind == PARAM_BLOCK_EXPERTS) {
            char *number = strstr(name, ".0.");
            if (params_layer(params, param->block) > 0 || number == NULL)
                continue;
            number[1] = '*';
        }
        jsontext_set(&about, name, about_param(config, param));
    }
    return about;
}

/* What an optimizer keeps, and one to which it leaves tensors. */
static void about_optimizer(const struct optimizer_ops *optimizer,
                            json_t **about)
{
    static const char *const kinds[UPDATE_MOMENTS] = { "first moment",
                                                       "second moment" };
    char name[64];
    for (int i = 0; i < optimizer_moments(optimizer); i++) {
        snprintf(name, sizeof name, "optimizer/%s", optimizer->moments[i]);
        jsontext_set(about, name, json_pack("{s:s}", "kind", kinds[i]));
    }
    for (int i = 0; i < optimizer_states(optimizer); i++) {
        snprintf(name, sizeof name, "optimizer/%s", optimizer->states[i]);
        jsontext_set(about, name,
                     json_pack("{s:s, s:s}", "kind", "optimizer state", "of",
                               optimizer->name));
    }
    if (optimizer->other != NULL)
        about_optimizer(optimizer->other, about);
}

/* Weights, and what the run's optimizers keep. */
static json_t *about_kinds(const struct train_settings *s)
{
    json_t *about =
        json_pack("{s:{s:s, s:s}}", "", "kind", "weight", "trained_in",
                  train_precision_names[s->train.precision]);
    about_optimizer(optimizer_at(s->optimizer.name), &about);
    for (int i = 0; i < s->groups.count; i++)
        about_optimizer(s->groups.list[i].optimizer, &about);
    for (int i = 0; i < REPLICA_KEPT && s->needs.kept[i].name != NULL; i++) {
        char name[64];
        snprintf(name, sizeof name, "algorithms/%s", s->needs.kept[i].name);
        if (s->needs.kept[i].saved)
            jsontext_set(&about, name,
                         json_pack("{s:s}", "kind", "of an algorithm"));
    }
    return about;
}

json_t *on_checkpoint_about(const struct run *run)
{
    const struct model_config *config = &run->settings.model;
    return json_pack("{s:o, s:o}", "kinds", about_kinds(&run->settings),
                     "tensors",
                     on_checkpoint_about_params(config, run->engine.params));
}
