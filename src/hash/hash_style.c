/* The model styles of tessera-hash, and the training whose bits are hashed.
 * README has the digests that they are compared with.
 *
 * A digest covers everything in which a bit may go wrong: each step's loss and
 * gradient norm as they come, and at the end all weights and moments by name, in
 * full, wherever the ranks have their parts of them. One flipped bit in the first
 * step changes all that follows. A style is a handful of settings over common
 * ones; together they reach every op and every path of the model. */
#include "src/hash/hash_style.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/base/new.h"
#include "src/train/loop/trainer.h"
#include "src/train/start/start_settings.h"

/* All of it from the header: nothing to install where the programs run. */
#define XXH_INLINE_ALL
#include <xxhash.h>

#define RANKS_MAX 4 /* slots of a batch */
/* Two batches and a half, so that an epoch ends within the run. */
#define SAMPLES 20
#define SETTINGS_MAX 16
#define OVERRIDES_MAX 64

/* What every style has, unless it says otherwise. */
static const char *const common[SETTINGS_MAX] = {
    /* nothing is written there */
    "run.dir=/nonexistent/tessera-hash",
    "data.train=/nonexistent/tessera-hash-data",
    "data.verify=sizes",
    "data.seq_len=33",
    "model.max_seq_len=40",
    "model.vocab_size=257",
    "model.n_layers=2",
    "train.global_batch=8",
    "train.microbatch=1",
    "parallel.slots=4",
    "train.max_duration=5ba",
    "optimizer.lr=3e-3",
    "optimizer.weight_decay=1e-2",
    "scheduler.warmup=2ba",
    "hardware.backend=cpu",
};

static const struct style {
    const char *name;
    const char *settings[SETTINGS_MAX];
} styles[] = {
    { "mpt",
      { "model.preset=mpt-tiny", "model.d_model=48", "model.n_heads=3",
        "model.attn_uses_sequence_id=false" } },
    { "mpt-alibi",
      { "model.preset=mpt-tiny", "model.d_model=80", "model.n_heads=5",
        "model.positions=alibi", "model.alibi_bias_max=7", "model.bias=false",
        "model.logit_scale=0.5", "train.clip_norm=0.5" } },
    { "llama",
      { "model.preset=llama-tiny", "model.d_model=80", "model.n_heads=4",
        "model.ffn_width=208" } },
    { "qk-norm",
      { "model.preset=llama-tiny", "model.d_model=48", "model.n_heads=4",
        "model.ffn_width=80", "model.qk_norm=head", "model.activation=gelu",
        "model.norm=low_precision_rmsnorm", "model.residual_scale=0.7" } },
    { "moe",
      { "model.preset=moe-tiny", "model.d_model=48", "model.n_heads=4",
        "model.ffn_width=48", "model.experts=5", "model.clip_qkv=0.8" } },
    { "moe-power",
      { "model.preset=moe-tiny", "model.d_model=48", "model.n_heads=3",
        "model.n_kv_heads=1", "model.ffn_width=48", "model.experts=4",
        "model.experts_top_k=3", "model.router_normalize=3",
        "model.qk_norm=full" } },
    { "dropout",
      { "model.preset=mpt-tiny", "model.d_model=48", "model.n_heads=4",
        "model.dropout_embedding=0.1", "model.dropout_attention=0.1",
        "model.dropout_residual=0.1", "model.init=xavier_uniform",
        "memory.compression=bf16" } },
    { "lion",
      { "model.preset=mpt-tiny", "model.d_model=48", "model.n_heads=3",
        "model.ffn=glu", "model.activation=silu",
        "model.norm=low_precision_layernorm", "model.init=neox",
        "optimizer.name=lion", "optimizer.lr=3e-4", "scheduler.name=linear",
        "memory.compression=int8" } },
    { "long",
      { "model.preset=mpt-tiny", "model.d_model=48", "model.n_heads=1",
        "model.n_layers=1", "model.ffn_width=400", "model.tied=false",
        "model.max_seq_len=203", "data.seq_len=203", "train.global_batch=16",
        "train.microbatch=2", "train.max_duration=2ba" } },
};

const char *hash_style_name(int index)
{
    assert(index >= 0);
    int count = sizeof styles / sizeof styles[0];
    return index >= 0 && index < count ? styles[index].name : NULL;
}

enum err hash_style_check(const char *override)
{
    static const char *const may_change[] = {
        "hardware.kernel_set=",    "hardware.threads=",
        "memory.checkpoint=",      "parallel.strategy=",
        "parallel.shard_degree=",  "parallel.prefetch=",
        "parallel.expert_degree=", "parallel.timeout_s="
    };
    for (size_t i = 0; i < sizeof may_change / sizeof may_change[0]; i++)
        if (strncmp(override, may_change[i], strlen(may_change[i])) == 0)
            return ERR_OK;
    return err_set(ERR_USAGE,
                   "'%s': only settings that leave the bits alone can be "
                   "given; see --help",
                   override);
}

/* Common ones, the style's, then the user's. */
static enum err load_settings(const struct style *style, char *const *overrides,
                              int override_count, struct train_settings *out)
{
    char *all[2 * SETTINGS_MAX + OVERRIDES_MAX];
    int count = 0;
    if (override_count > OVERRIDES_MAX)
        return err_set(ERR_USAGE, "%d settings: at most %d can be given",
                       override_count, OVERRIDES_MAX);
    for (int i = 0; i < SETTINGS_MAX && common[i] != NULL; i++)
        all[count++] = (char *)(uintptr_t)common[i];
    for (int i = 0; i < SETTINGS_MAX && style->settings[i] != NULL; i++)
        all[count++] = (char *)(uintptr_t)style->settings[i];
    for (int i = 0; i < override_count; i++)
        all[count++] = overrides[i];
    return start_settings_load(NULL, all, count, out);
}

/* The whole tensor, of which every rank has an interval; `ends` is room for those
 * of all ranks. */
static enum err gather_item(struct comm *comm, const struct ckpt_item *item,
                            int64_t (*ends)[2], char *whole)
{
    int rank = comm_rank(comm);
    ends[rank][0] = item->part.begin;
    ends[rank][1] = item->part.end;
    TRY(comm_gather_rows(comm, ends, sizeof *ends));
    size_t *bytes = comm_sizes(comm, 0), *offsets = comm_sizes(comm, 1);
    for (int r = 0; r < comm_size(comm); r++) {
        bytes[r] = (size_t)(ends[r][1] - ends[r][0]) * sizeof(float);
        offsets[r] = (size_t)ends[r][0] * sizeof(float);
    }
    if (bytes[rank] > 0)
        memcpy(whole + offsets[rank], item->data, bytes[rank]);
    return comm_all_gather(comm, whole, bytes, offsets);
}

/* Weights and moments, in the order of the items, which is the same on every
 * rank. */
static enum err digest_items(const struct run *run, XXH64_state_t *state)
{
    enum err rc = ERR_OK;
    int count = 0;
    const struct ckpt_item *items = replica_items(run->engine.replica, &count);
    size_t bytes = (size_t)run->engine.params->numel * sizeof(float);
    int64_t(*ends)[2] = NULL;
    char *whole = NULL;
    rc = new_zeroed(&ends, (size_t)run->ranks);
    if (rc == ERR_OK)
        rc = new_room(&whole, bytes);
    TRY_OUT(comm_agree(run->comm, rc));
    for (int i = 0; i < count; i++) {
        size_t elements = 1;
        for (int d = 0; d < items[i].dims; d++)
            elements *= (size_t)items[i].shape[d];
        TRY_OUT(gather_item(run->comm, &items[i], ends, whole));
        XXH64_update(state, items[i].name, strlen(items[i].name));
        XXH64_update(state, whole, elements * sizeof(float));
    }
out:
    free(whole);
    free(ends);
    return rc;
}

/* As tessera-train does, without listeners: nothing is written, and nothing is
 * between the steps that could change them. */
static enum err train(struct comm *comm, const struct train_settings *settings,
                      char digest[HASH_STYLE_DIGITS + 1])
{
    enum err rc = ERR_OK;
    XXH64_state_t state;
    struct run *run = NULL;
    XXH64_reset(&state, 0);
    TRY_OUT(trainer_create(comm, settings, 1, &run));
    TRY_OUT(trainer_start(run));
    const struct step_record *record = &run->now.record;
    while (run->position.step < run->plan.max_steps) {
        TRY_OUT(trainer_step(run));
        XXH64_update(&state, &record->loss, sizeof record->loss);
        XXH64_update(&state, &record->grad_norm, sizeof record->grad_norm);
    }
    TRY_OUT(digest_items(run, &state));
    snprintf(digest, HASH_STYLE_DIGITS + 1, "%016llx",
             (unsigned long long)XXH64_digest(&state));
out:
    trainer_destroy(run);
    return rc;
}

/* Every rank has a data set of its own, so that ranks need no shared folder. */
enum err hash_style_train(struct comm *comm, int index, char *const *overrides,
                          int override_count,
                          char digest[HASH_STYLE_DIGITS + 1])
{
    assert(hash_style_name(index) != NULL);
    enum err rc = ERR_OK;
    char folder[FSIO_PATH_MAX] = "";
    struct train_settings *settings = calloc(1, sizeof *settings);
    if (comm_size(comm) > RANKS_MAX)
        rc = err_set(ERR_USAGE,
                     "%d ranks: at most %d train together; with --alone any "
                     "number do, each for itself",
                     comm_size(comm), RANKS_MAX);
    else if (settings == NULL)
        rc = err_set(ERR_MEMORY, "out of memory");
    if (rc == ERR_OK)
        rc = load_settings(&styles[index], overrides, override_count, settings);
    if (rc == ERR_OK)
        rc = hash_data_create(SAMPLES, settings->data.seq_len, folder);
    TRY_OUT(comm_agree(comm, rc));
    snprintf(settings->data.train, sizeof settings->data.train, "%s", folder);
    TRY_OUT(train(comm, settings, digest));
out:
    hash_data_remove(folder);
    free(settings);
    return rc;
}
