/* A small model's checkpoint for tests of weights: fresh weights, saved by the
 * replica of some strategy on all ranks of a communicator. */
#pragma once

#include "checkpoint/ckpt.h"
#include "checkpoint/files/ckpt_index.h"
#include "kernels/kernels.h"
#include "src/base/fsio.h"
#include "src/base/rng.h"
#include "src/comm/comm.h"
#include "src/parallel/replica.h"
#include "src/text/tokenizer/tokenizer.h"
#include "src/formats/weights.h"
#include "src/formats/weights_ckpt_config.h"
#include "tests/ckpt_save.h"
#include "tests/tap.h"

#define FIXTURE_SEED 17
#define FIXTURE_STEP 3

/* Two blocks of the preset, of 300 tokens. */
static inline enum err weights_fixture_config(const char *preset,
                                              struct model_config *config)
{
    TRY(model_config_preset(preset, config));
    config->d_model = 64;
    config->n_heads = 4;
    config->n_kv_heads = 4;
    config->ffn_width = 192;
    config->n_layers = 2;
    config->vocab_size = 300;
    config->max_seq_len = 32;
    return model_config_check(config);
}

/* As tessera-train writes it, as far as it says what the model is. */
static inline json_t *weights_fixture_state(const struct model_config *config,
                                            const char *tokenizer_sha256)
{
    const struct weights_about about = { .chat_template = "{{ messages }}" };
    json_t *fixed = weights_ckpt_config_fixed(config);
    json_object_set_new(fixed, "tokenizer", json_string(tokenizer_sha256));
    return json_pack("{s:s, s:o, s:i, s:o}", "run_uuid", "weights-fixture",
                     "fixed", fixed, "tokens", 12345, "text",
                     weights_ckpt_config_text(290, -1, 7, &about));
}

/* Fresh weights of the seed, with the bytes of a tokenizer if there are any.
 * Collective. */
static inline enum err weights_fixture_save(struct comm *comm,
                                            const struct model_config *config,
                                            const struct replica_options *how,
                                            const char *tokenizer,
                                            const char *run_dir, int64_t step)
{
    enum err rc = ERR_OK;
    const struct kernels *kernels = NULL;
    struct kernel_ctx ctx = { .threads = 1 };
    struct params *params = NULL;
    struct replica *replica = NULL;
    struct ckpt_item *items = NULL;
    int count = 0;
    struct ckpt_options options = { .attempt = "1.1", .timeout_s = 60.0 };
    json_t *state = weights_fixture_state(config, "another");
    TRY_OUT(kernels_find("cpu", "generic", &kernels));
    TRY_OUT(params_create(config, &params));
    TRY_OUT(replica_create(comm, kernels, &ctx, params, how, &replica));
    TRY_OUT(replica_init(replica, FIXTURE_SEED, NULL));
    const struct ckpt_item *list = replica_items(replica, &count);
    items = calloc((size_t)count + 1, sizeof *items);
    if (items == NULL) {
        rc = ERR_MEMORY;
        goto out;
    }
    memcpy(items, list, (size_t)count * sizeof *items);
    if (tokenizer != NULL) {
        int64_t bytes = (int64_t)strlen(tokenizer);
        items[count] = (struct ckpt_item){ .name = WEIGHTS_CKPT_TOKENIZER,
                                           .dtype = DTYPE_U8,
                                           .dims = 1 };
        items[count].shape[0] = bytes;
        items[count].part.end = comm_rank(comm) == 0 ? bytes : 0;
        items[count++].data = (void *)(uintptr_t)tokenizer;
    }
    TRY_OUT(
        ckpt_save(comm, run_dir, step, state, items, count, &options, NULL));
out:
    json_decref(state);
    free(items);
    replica_destroy(replica);
    params_destroy(params);
    return rc;
}

/* Elements [begin, end) of the flat space as the fixture has saved them. */
static inline bool weights_fixture_same(const struct params *params,
                                        int64_t begin, int64_t end,
                                        const float *values)
{
    size_t bytes = (size_t)(end - begin) * sizeof(float);
    float *want = malloc(bytes + 1);
    if (want == NULL)
        return false;
    params_init(params, FIXTURE_SEED, begin, end, want);
    bool same = memcmp(want, values, bytes) == 0;
    free(want);
    return same;
}

static inline void is_ok(enum err rc, const char *what)
{
    tap_ok(rc == ERR_OK, "%s%s%s", what, rc == ERR_OK ? "" : ": ",
           rc == ERR_OK ? "" : err_text());
}

static inline void fails(enum err rc, enum err want, const char *part,
                         const char *what)
{
    bool pass = rc == want && strstr(err_text(), part) != NULL;
    tap_ok(pass, "%s", what);
    if (!pass)
        tap_note("%s: %s", err_name(rc), rc == ERR_OK ? "" : err_text());
}
