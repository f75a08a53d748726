/* FLOPs of models of which a part trains, against figures that were counted by
 * hand. */
#include "src/model/model.h"
#include "tests/model_fixture.h"

/* d 16, 2 heads of 8, 1 of keys and values, ffn 16, 2 layers, vocabulary 37, no
 * biases. A layer: Wqkv 32 x 16, out, gate, up and down 16 x 16 each, two norms:
 * 512 + 4 x 256 + 32 = 1568. Head 592, its norm 16. All without the embedding:
 * 3744. Sequences of 3: attention 4 x 16 x 9 = 576 of a layer in each of three
 * parts, half of that causal. */
#define GATED                                                                  \
    {                                                                          \
        .d_model = 16, .n_heads = 2, .n_kv_heads = 1, .ffn_width = 16,         \
        .positions = POSITIONS_ROPE, .norm = MODEL_NORM_RMSNORM,               \
        .ffn = FFN_GLU, .activation = MODEL_SILU                               \
    }
#define LLAMA_WHOLE (6 * 3744 * 3 + 3 * 2 * 576)
/* The first layer with a window of 2: 6 pairs of 9, seen 4 of 4.5. */
#define WINDOWED                                                               \
    {                                                                          \
        .d_model = 16, .n_heads = 2, .n_kv_heads = 1, .ffn_width = 16,         \
        .positions = POSITIONS_ROPE, .norm = MODEL_NORM_RMSNORM,               \
        .ffn = FFN_GLU, .activation = MODEL_SILU, .window = 2,                 \
        .window_interval = 2                                                   \
    }
#define WINDOWED_WHOLE (6 * 3744 * 3 + 3 * (384 + 576))
/* The same, 4 experts of which a token has 2: router 4 x 16, experts 2 x 768 of a
 * token. A layer: 512 + 256 + 32 + 64 + 1536 = 2400. */
#define EXPERTS                                                                \
    {                                                                          \
        .d_model = 16, .n_heads = 2, .n_kv_heads = 1, .ffn_width = 16,         \
        .positions = POSITIONS_ROPE, .norm = MODEL_NORM_RMSNORM,               \
        .ffn = FFN_GLU, .activation = MODEL_SILU, .experts = 4,                \
        .experts_top_k = 2                                                     \
    }
#define EXPERTS_WHOLE (6 * (2 * 2400 + 608) * 3 + 3 * 2 * 576)
/* d 16, 2 heads, ffn 16, tied, 5 learned positions, biases. A layer: Wqkv
 * 48 x 16 + 48, out, up and down 256 + 16 each, norms 64: 1696. Embedding 592,
 * positions 80, the head's norm 32. */
#define MPT                                                                    \
    {                                                                          \
        .d_model = 16, .n_heads = 2, .ffn_width = 16, .max_seq_len = 5,        \
        .bias = true, .tied = true                                             \
    }
#define MPT_WHOLE (6 * (2 * 1696 + 704) * 3 + 3 * 2 * 576)

static const struct {
    const char *name;
    struct model_config config;
    struct params_tuning tuning;
    double flops, causal;
} cases[] = {
    { "adapters of queries: 2 x (16 + 16)", GATED, TUPLE("", "q_proj", 1),
      LLAMA_WHOLE - 2 * 3744 * 3 + 6 * 64 * 3,
      LLAMA_WHOLE - 2 * 3744 * 3 + 6 * 64 * 3 - 3 * 576 },
    { "adapters of rank 3 of all: 3 x (5 x 32 + 2 x 24)", GATED,
      TUPLE("", "*", 3), LLAMA_WHOLE - 2 * 3744 * 3 + 6 * 2 * 624 * 3,
      LLAMA_WHOLE - 2 * 3744 * 3 + 6 * 2 * 624 * 3 - 3 * 576 },
    { "adapters of the last layer: the first one only forward", GATED,
      TUPLE("", "*.1.attn.q_proj", 1),
      LLAMA_WHOLE - 2 * 3744 * 3 + 6 * 32 * 3 - 2 * 1568 * 3 - 2 * 576,
      LLAMA_WHOLE - 2 * 3744 * 3 + 6 * 32 * 3 - 2 * 1568 * 3 - 576 - 3 * 576 },
    { "adapters beside what trains: the head does", GATED,
      TUPLE("*wte* *blocks* *norm_f*", "q_proj", 1),
      LLAMA_WHOLE - 2 * 3152 * 3 + 6 * 64 * 3,
      LLAMA_WHOLE - 2 * 3152 * 3 + 6 * 64 * 3 - 3 * 576 },
    { "an embedding that nothing is multiplied with", GATED,
      TUPLE("*wte*", "", 0), LLAMA_WHOLE, LLAMA_WHOLE - 3 * 576 },
    { "attention frozen: 768 of each layer", GATED, TUPLE("*attn*", "", 0),
      LLAMA_WHOLE - 2 * 1536 * 3, LLAMA_WHOLE - 2 * 1536 * 3 - 3 * 576 },
    { "only the head: layers only forward", GATED,
      TUPLE("*wte* *blocks*", "", 0), LLAMA_WHOLE - 4 * 3136 * 3 - 2 * 2 * 576,
      LLAMA_WHOLE - 4 * 3136 * 3 - 2 * 576 - 3 * 576 },
    { "experts frozen: 1536 of each layer of a token", EXPERTS,
      TUPLE("*experts*", "", 0), EXPERTS_WHOLE - 2 * 3072 * 3,
      EXPERTS_WHOLE - 2 * 3072 * 3 - 3 * 576 },
    { "a window of 2: 6 and 4 pairs of a layer, frozen below", WINDOWED,
      TUPLE("*wte* *blocks*", "", 0),
      WINDOWED_WHOLE - 4 * 3136 * 3 - 2 * (384 + 576),
      WINDOWED_WHOLE - 4 * 3136 * 3 - 2 * (256 + 288) - (384 - 256 + 288) * 3 },
    { "a tied embedding frozen, of the head's products only its own gradient",
      MPT, TUPLE("*wte* *wpe* *.blocks.0.*", "", 0),
      MPT_WHOLE - 2 * 592 * 3 - 4 * (1696 + 80) * 3 - 2 * 576,
      MPT_WHOLE - 6 * 80 * 3 - 2 * 592 * 3 - 4 * 1696 * 3 - 576 - 3 * 576 },
};

static void test_parts(void)
{
    for (size_t i = 0; i < sizeof cases / sizeof cases[0]; i++) {
        struct model_fixture *f =
            fixture_create_tuned(cases[i].config, &cases[i].tuning, false);
        tap_is_close(model_flops_per_sequence(&f->config, f->params, 3),
                     cases[i].flops, 1e-12, "%s", cases[i].name);
        tap_is_close(model_flops_per_sequence_causal(&f->config, f->params, 3),
                     cases[i].causal, 1e-12, "%s, causal", cases[i].name);
        fixture_destroy(f);
    }
}

/* What is published stays, to the bit. */
static void test_whole(void)
{
    for (int i = 0; i < model_preset_weights; i++) {
        struct model_config config;
        struct params *params = NULL;
        int64_t s = 2048;
        bool fine =
            model_config_preset(model_preset_names[i], &config) == ERR_OK &&
            params_create(&config, &params) == ERR_OK;
        tap_ok(fine &&
                   model_flops_per_sequence(&config, params, s) ==
                       model_config_flops_per_sequence(&config, s) &&
                   model_flops_per_sequence_causal(&config, params, s) ==
                       model_config_flops_per_sequence_causal(&config, s),
               "%s: all of it", model_preset_names[i]);
        params_destroy(params);
    }
}

int main(void)
{
    test_parts();
    test_whole();
    return tap_done();
}
