/* What an engine says of a few texts, in any way of reading them. */
#pragma once

#include "src/infer/infer.h"
#include "tests/model_fixture.h"

#define SLOTS 3
#define LENGTH 29
#define TOKENS (SLOTS * LENGTH)
#define VOCAB 37 /* fixture_complete() */

/* Of which some is frozen, or that have adapters. */
static const struct tuned_case {
    const char *name;
    struct model_config config;
    struct params_tuning tuning;
    double alpha;
} tuned[] = {
    { "embeddings frozen", { FOUNDRY }, { "transformer.w*", "", 0 }, 0 },
    { "untied embedding frozen", { LLAMA }, { "*wte*", "", 0 }, 0 },
    { "head frozen", { LLAMA }, { "lm_head.weight", "", 0 }, 0 },
    { "positions frozen", { FOUNDRY }, { "*wpe*", "", 0 }, 0 },
    { "only the last layer", TUPLE(FOUNDRY, .n_layers = 3),
      TUPLE("transformer.w* *.blocks.0.* *.blocks.1.*", "", 0), 0 },
    { "only the head's norm", TUPLE(FOUNDRY),
      TUPLE("transformer.w* transformer.blocks.*", "", 0), 0 },
    { "biases only", { FOUNDRY }, { "*.weight", "", 0 }, 0 },
    { "experts frozen", { DBRX }, { "*.experts.*", "", 0 }, 0 },
    { "router and experts' gates frozen", TUPLE(DBRX),
      TUPLE("*.router.* *.mlp.w1", "", 0), 0 },
    { "adapters of all", { LLAMA }, { "", "*", 3 }, 8 },
    { "adapters of all, mpt", { FOUNDRY }, { "", "*", 2 }, 1 },
    { "adapters of keys and values",
      TUPLE(LLAMA, .clip_qkv = 0.6, .qk_norm = QK_NORM_HEAD),
      TUPLE("", "k_proj *.1.attn.v_proj", 4), 16 },
    { "adapters of a rank above the width", TUPLE(LLAMA),
      TUPLE("", "up_proj o_proj", 70), 5 },
    { "adapters beside experts", { DBRX, .tied = true }, { "", "*", 4 }, 4 },
    { "adapters and norms", TUPLE(LLAMA),
      TUPLE("*attn* *ffn* *wte* lm_head*", "down_proj gate_proj", 4), 8 },
};

/* What the engine says of all tokens. */
struct said {
    float logits[TOKENS][VOCAB];
    float nll[TOKENS];
    int32_t argmax[TOKENS];
};
static struct said want[1], got[1]; /* of the case at hand */

/* How the tokens come. */
enum cut {
    CUT_WHOLE,  /* slot by slot */
    CUT_SINGLE, /* token by token */
    CUT_BATCH,  /* all slots in one call */
    CUT_RAGGED, /* some of each in turn, of different lengths */
    CUTS
};

struct way {
    int threads;
    int64_t rows;
    enum cut cut;
    int held; /* enum infer_weights, or -1: gathered */
};

static inline struct infer_tokens tokens_of(struct model_fixture *f,
                                            struct said *said, int slot,
                                            int64_t from, int64_t count)
{
    int64_t at = slot * LENGTH + from;
    return (struct infer_tokens){ .slot = slot,
                                  .count = count,
                                  .tokens = f->tokens + at,
                                  .wanted = count,
                                  .logits = said->logits[at],
                                  .labels = f->labels + at,
                                  .nll = said->nll + at,
                                  .argmax = said->argmax + at };
}

/* The next call's; 0: there are none left. */
static inline int next_call(struct model_fixture *f, enum cut cut, int call,
                            const struct infer *infer, struct said *said,
                            struct infer_tokens list[SLOTS])
{
    int count = 0;
    for (int slot = 0; slot < SLOTS; slot++) {
        int64_t from = infer_length(infer, slot), left = LENGTH - from;
        int64_t some = cut == CUT_SINGLE   ? 1
                       : cut == CUT_RAGGED ? (call * 5 + slot * 7) % 11
                                           : left;
        if (left == 0 || (count > 0 && cut == CUT_WHOLE))
            continue;
        list[count++] =
            tokens_of(f, said, slot, from, some < left ? some : left);
    }
    return count;
}

static inline enum err say(struct model_fixture *f,
                           const struct kernels *kernels, const struct way *way,
                           struct said *said)
{
    enum err rc = ERR_OK;
    struct infer *infer = NULL;
    struct param_access access = fixture_access(f);
    const struct infer_options options = { .threads = way->threads,
                                           .sequences = SLOTS,
                                           .positions = LENGTH,
                                           .rows = way->rows,
                                           .lora_alpha = f->lora.alpha };
    struct infer_tokens list[SLOTS];
    int count;
    memset(said, 0xff, sizeof *said);
    TRY_OUT(infer_create(&f->config, f->params, kernels, &options, &infer));
    if (way->held >= 0)
        TRY_OUT(infer_hold(infer, &access, (enum infer_weights)way->held));
    for (int call = 0;
         (count = next_call(f, way->cut, call, infer, said, list)) > 0; call++)
        TRY_OUT(
            infer_forward(infer, way->held >= 0 ? NULL : &access, list, count));
out:
    infer_destroy(infer);
    return rc;
}

static inline bool says(struct model_fixture *f, const struct kernels *kernels,
                        const struct way *way, struct said *said)
{
    bool fine = say(f, kernels, way, said) == ERR_OK;
    if (!fine)
        tap_note("%s", err_text());
    return fine;
}

/* tuning may be NULL. */
static inline struct model_fixture *
create_tuned(struct model_config config, const struct params_tuning *tuning,
             double alpha)
{
    config.max_seq_len = LENGTH;
    struct model_fixture *f = fixture_create_tuned(config, tuning, false);
    if (tuning != NULL)
        f->lora = (struct lora_options){ .rank = tuning->rank,
                                         .alpha = alpha,
                                         .targets = tuning->targets };
    fixture_leaf(f, SLOTS, LENGTH, false);
    return f;
}

static inline struct model_fixture *create(struct model_config config)
{
    return create_tuned(config, NULL, 0.0);
}

/* One of those above. */
static inline struct model_fixture *create_case(const struct tuned_case *c)
{
    return create_tuned(c->config, &c->tuning, c->alpha);
}
