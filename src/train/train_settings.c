/* The schema of a training run's settings, and how they are loaded and
 * completed. Whether they go together is checked in train_settings_check.c;
 * files and overrides are read by src/base/settings.c. */
#include "src/train/train_settings.h"

#include <stddef.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/parallel/optimizer.h"
#include "src/train/train_memory.h"
#include "src/train/train_settings_check.h"
#include "src/train/train_settings_model.h"

#define AT(field) offsetof(struct train_settings, field)
#define LARGE 1e15
#define SAMPLES_MAX 1e9 /* of a batch: times the longest sample still exact */

const struct setting train_settings_schema[] = {
    { "run.dir", SETTING_PATH, AT(run.dir), NULL, 0, 0, NULL,
      "run directory: checkpoints, metrics, ledger, resolved configuration" },
    { "run.mode", SETTING_STRING, AT(run.mode), "", 0, 0, NULL,
      "permissions of the run's folders, such as 0750 or 0770, files alike; "
      "empty: what the umask leaves" },
    { "run.group", SETTING_STRING, AT(run.group), "", 0, 0, NULL,
      "group that the run directory and all in it belong to; empty: yours" },

    { "model.preset", SETTING_CHOICE, AT(model.preset), "mpt-tiny", 0, 0,
      "mpt-tiny|llama-tiny|moe-tiny|mpt-125m|mpt-350m|mpt-760m|mpt-1b|mpt-3b|"
      "mpt-7b|mpt-13b|mpt-30b|mpt-70b|mpt-7b-released|llama3-8b|dbrx",
      "shape of the model; every other model setting that is not given is the "
      "preset's" },
    { "model.d_model", SETTING_INT, AT(model.d_model), "0", 0, 65536, NULL,
      "width of the residual stream; 0: the preset's" },
    { "model.n_heads", SETTING_INT, AT(model.n_heads), "0", 0, 1024, NULL,
      "attention heads; 0: the preset's" },
    { "model.n_kv_heads", SETTING_INT, AT(model.n_kv_heads), "0", 0, 1024, NULL,
      "heads of keys and values, a divisor of model.n_heads; 0: as many "
      "queries for each as in the preset" },
    { "model.n_layers", SETTING_INT, AT(model.n_layers), "0", 0,
      MODEL_LAYERS_MAX, NULL, "transformer blocks; 0: the preset's" },
    { "model.vocab_size", SETTING_INT, AT(model.vocab_size), "0", 0, 16777216,
      NULL, "rows of the embedding, at least the data set's; 0: the preset's" },
    { "model.max_seq_len", SETTING_INT, AT(model.max_seq_len), "0", 0, 1048576,
      NULL, "longest sequence; 0: the preset's" },
    { "model.expansion_ratio", SETTING_FLOAT, AT(model.expansion_ratio), "0", 0,
      64, NULL, "width of the MLP / d_model; 0: the preset's" },
    { "model.ffn_width", SETTING_INT, AT(model.ffn_width), "0", 0, 1048576,
      NULL,
      "width of the MLP, of each expert; 0: model.expansion_ratio x "
      "model.d_model" },
    { "model.positions", SETTING_CHOICE, AT(model.positions), "learned", 0, 0,
      "learned|alibi|rope", "how the model knows the order of tokens" },
    { "model.rope_theta", SETTING_FLOAT, AT(model.rope_theta), "1e4", 1, 1e12,
      NULL, "base of the rotary angles" },
    { "model.alibi_bias_max", SETTING_FLOAT, AT(model.alibi_bias_max), "8", 0,
      64, NULL, "exponent of ALiBi's smallest slope, 2^-this" },
    { "model.norm", SETTING_CHOICE, AT(model.norm), "layernorm", 0, 0,
      "layernorm|rmsnorm|low_precision_layernorm|low_precision_rmsnorm",
      "normalisation; low_precision: of bf16 values" },
    { "model.norm_eps", SETTING_FLOAT, AT(model.norm_eps), "1e-5", 1e-20, 1,
      NULL, "added to the variance" },
    { "model.qk_norm", SETTING_CHOICE, AT(model.qk_norm), "none", 0, 0,
      "none|full|head", "norm of queries and keys: of all heads, or each" },
    { "model.clip_qkv", SETTING_FLOAT, AT(model.clip_qkv), "0", 0, 1e6, NULL,
      "bound of queries, keys and values; 0: none" },
    { "model.attn_uses_sequence_id", SETTING_BOOL,
      AT(model.attn_uses_sequence_id), "true", 0, 0, NULL,
      "tokens attend within their document; false: within their sample" },
    { "model.ffn", SETTING_CHOICE, AT(model.ffn), "mlp", 0, 0, "mlp|glu",
      "down(act(up(x))), or down(act(gate(x)) up(x))" },
    { "model.activation", SETTING_CHOICE, AT(model.activation), "gelu", 0, 0,
      "gelu|silu", "of the MLP" },
    { "model.bias", SETTING_BOOL, AT(model.bias), "true", 0, 0, NULL,
      "biases of linear layers and layer norms" },
    { "model.tied", SETTING_BOOL, AT(model.tied), "true", 0, 0, NULL,
      "the output layer is the embedding" },
    { "model.logit_scale", SETTING_FLOAT, AT(model.logit_scale), "1", 1e-6, 1e6,
      NULL, "multiplies logits" },
    { "model.residual_scale", SETTING_FLOAT, AT(model.residual_scale), "1",
      1e-6, 1e6, NULL, "multiplies what a block adds to the stream" },
    { "model.dropout_embedding", SETTING_FLOAT, AT(model.dropout_embedding),
      "0", 0, 0.99, NULL, "probability of dropping after the embedding" },
    { "model.dropout_attention", SETTING_FLOAT, AT(model.dropout_attention),
      "0", 0, 0.99, NULL, "probability of dropping an attention weight" },
    { "model.dropout_residual", SETTING_FLOAT, AT(model.dropout_residual), "0",
      0, 0.99, NULL, "probability of dropping what a block adds" },
    { "model.init", SETTING_CHOICE, AT(model.init), "kaiming_normal", 0, 0,
      "kaiming_normal|kaiming_uniform|xavier_normal|xavier_uniform|small|neox|"
      "baseline",
      "fresh matrices; those that write into the stream are smaller, and with "
      "kaiming the one that makes logits" },
    { "model.init_std", SETTING_FLOAT, AT(model.init_std), "0", 0, 1e3, NULL,
      "standard deviation of model.init = \"baseline\"" },
    { "model.init_embedding_std", SETTING_FLOAT, AT(model.init_embedding_std),
      "0", 0, 1e3, NULL, "of the embedding; 0: by model.init" },
    { "model.experts", SETTING_INT, AT(model.experts), "0", 0, 256, NULL,
      "experts of each block; 0: a dense model" },
    { "model.experts_top_k", SETTING_INT, AT(model.experts_top_k), "0", 0, 16,
      NULL, "experts of each token" },
    { "model.router_jitter", SETTING_FLOAT, AT(model.router_jitter), "0", 0,
      0.99, NULL, "the router's input is multiplied by U(1 - j, 1 + j)" },
    { "model.router_normalize", SETTING_FLOAT, AT(model.router_normalize), "0",
      0, 64, NULL, "p of the L_p norm of a token's weights; 0: as they are" },
    { "model.balance_weight", SETTING_FLOAT, AT(model.balance_weight), "0", 0,
      1e3, NULL, "weight of the load-balance loss" },

    { "memory.checkpoint", SETTING_STRING, AT(memory.checkpoint), "none", 0, 0,
      NULL,
      "what backward computes again: \"block: all\", \"ffn: first-4; "
      "attention: "
      "last-2\" (block, attention, norm_attn_norm, ffn, activation, "
      "norm)" },
    { "memory.compression", SETTING_CHOICE, AT(memory.compression), "none", 0,
      0, "none|bf16|int8", "what forward keeps for backward, in fewer bits" },
    { "memory.limit", SETTING_BYTES, AT(memory.limit), "none", 0, LARGE, NULL,
      "memory that a rank may plan for, of the GPU with cuda: 80GiB; none: "
      "what "
      "there is" },

    { "data.train", SETTING_PATH, AT(data.train), NULL, 0, 0, NULL,
      "training data set (a folder made by tessera-data)" },
    { "data.eval", SETTING_PATH, AT(data.eval), "", 0, 0, NULL,
      "held-out data set; empty: no evaluation" },
    { "data.seq_len", SETTING_INT, AT(data.seq_len), "0", 0, 1048576, NULL,
      "tokens per sample; 0: model.max_seq_len" },
    { "data.too_long", SETTING_CHOICE, AT(data.too_long), "refuse", 0, 0,
      "refuse|truncate", "samples of more than data.seq_len tokens" },
    { "data.verify", SETTING_CHOICE, AT(data.verify), "auto", 0, 0,
      "auto|sizes|bytes",
      "what is checked of shards at the start; bytes: their checksums, each "
      "rank its share; auto: bytes up to 256 MiB a rank" },

    { "train.max_duration", SETTING_DURATION, AT(train.max_duration), NULL, 0,
      0, NULL, "length of the run: ba, tok, sp, ep or sec" },
    { "train.global_batch", SETTING_INT, AT(train.global_batch), NULL, 1,
      SAMPLES_MAX, NULL, "samples per optimizer step, over all ranks" },
    { "train.microbatch", SETTING_INT, AT(train.microbatch), "auto", 0,
      SAMPLES_MAX, "auto",
      "samples computed at once (a leaf); auto: a whole slot, or what fits "
      "into "
      "memory.limit" },
    { "train.seed", SETTING_INT, AT(train.seed), "17", 0, LARGE, NULL,
      "seed of weights and sample order" },
    { "train.precision", SETTING_CHOICE, AT(train.precision), "auto", 0, 0,
      "auto|fp32|bf16|fp8",
      "of weights and activations at work, beside fp32 masters; auto: bf16 "
      "with cuda, fp32 with cpu, which has no other; fp8: bf16, but 8 bits in "
      "the products of the blocks" },
    { "train.clip_norm", SETTING_FLOAT, AT(train.clip_norm), "1.0", 0, LARGE,
      NULL, "limit of the gradient's global L2 norm; 0: no clipping" },
    { "train.on_spike", SETTING_CHOICE, AT(train.on_spike), "warn", 0, 0,
      "warn|stop|skip",
      "at a step far beyond the last 32: a warning; the end of the run; no "
      "update" },
    { "train.spike_loss", SETTING_FLOAT, AT(train.spike_loss), "2", 0, LARGE,
      NULL, "a loss so many times their median is far beyond; 0: none is" },
    { "train.spike_norm", SETTING_FLOAT, AT(train.spike_norm), "10", 0, LARGE,
      NULL, "and so is such a gradient norm; 0: none is" },

    { "optimizer.name", SETTING_CHOICE, AT(optimizer.name), "adamw", 0, 0,
      OPTIMIZER_CHOICES, "each has its own moments; all decay decoupled" },
    { "optimizer.lr", SETTING_FLOAT, AT(optimizer.lr), "6e-4", 0, 1e3, NULL,
      "peak learning rate" },
    { "optimizer.beta1", SETTING_FLOAT, AT(optimizer.beta1), "0.9", 0, 0.99999,
      NULL,
      "decay of the first moment, for Lion that of the sum whose sign counts" },
    { "optimizer.beta2", SETTING_FLOAT, AT(optimizer.beta2), "0.95", 0,
      0.999999, NULL,
      "decay of the second moment, of Lion's one moment (then 0.99 where it is "
      "not given)" },
    { "optimizer.eps", SETTING_FLOAT, AT(optimizer.eps), "1e-8", 1e-20, 1, NULL,
      "added to the root of the second moment" },
    { "optimizer.weight_decay", SETTING_FLOAT, AT(optimizer.weight_decay), "0",
      0, 1, NULL, "decoupled: weights shrink by lr / peak lr * this per step" },

    { "scheduler.name", SETTING_CHOICE, AT(scheduler.name), "cosine", 0, 0,
      "cosine|linear|constant", "learning rate after warm-up" },
    { "scheduler.warmup", SETTING_DURATION, AT(scheduler.warmup), "0ba", 0, 0,
      NULL, "linear warm-up from 0" },
    { "scheduler.alpha_final", SETTING_FLOAT, AT(scheduler.alpha_final), "0.1",
      0, 1, NULL, "final learning rate / peak" },
    { "scheduler.t_max", SETTING_DURATION, AT(scheduler.t_max), "1dur", 0, 0,
      NULL, "where the schedule ends" },

    { "eval.interval", SETTING_DURATION, AT(eval.interval), "1dur", 0, 0, NULL,
      "between evaluations on data.eval, of which the last step has one in any "
      "case (0ba: it alone)" },
    { "eval.samples", SETTING_INT, AT(eval.samples), "0", 0, LARGE, NULL,
      "samples per evaluation; 0: all" },

    { "checkpoint.interval", SETTING_DURATION, AT(checkpoint.interval), "100ba",
      0, 0, "auto",
      "between checkpoints, of which the last step has one in any case (0ba: it "
      "alone); auto: what loses the "
      "least time by measured cost and the ledger's failures" },
    { "checkpoint.local_dir", SETTING_STRING, AT(checkpoint.local_dir), "", 0,
      0, NULL,
      "folder on every node (tmpfs, NVMe) for checkpoints of its own, which "
      "survive the loss of a node; %j is the job's number; empty: none" },
    { "checkpoint.local_interval", SETTING_DURATION,
      AT(checkpoint.local_interval), "0ba", 0, 0, NULL,
      "between checkpoints in checkpoint.local_dir" },
    { "checkpoint.redundancy", SETTING_CHOICE, AT(checkpoint.redundancy),
      "partner", 0, 0, "partner|xor",
      "of checkpoints in checkpoint.local_dir: copies on the next node, or "
      "parity over groups of nodes" },
    { "checkpoint.redundancy_group", SETTING_INT,
      AT(checkpoint.redundancy_group), "8", 2, 32, NULL,
      "nodes of a group at most, which survives the loss of one of them" },
    { "checkpoint.keep", SETTING_INT, AT(checkpoint.keep), "3", 0, 1e6, NULL,
      "committed checkpoints to keep; 0: all" },
    { "checkpoint.keep_every", SETTING_INT, AT(checkpoint.keep_every), "0", 0,
      LARGE, NULL,
      "steps that are a multiple of it are kept for good; 0: none" },
    { "checkpoint.async", SETTING_BOOL, AT(checkpoint.async), "true", 0, 0,
      NULL,
      "copy the state and write it while training goes on; needs memory for "
      "the copy" },
    { "checkpoint.timeout_s", SETTING_FLOAT, AT(checkpoint.timeout_s), "600",
      0.1, 1e6, NULL, "seconds a rank may write, or be waited for in a save" },
    { "checkpoint.failures_max", SETTING_INT, AT(checkpoint.failures_max), "3",
      1, 1e6, NULL, "failed saves in a row that end the run" },

    { "parallel.strategy", SETTING_CHOICE, AT(parallel.strategy), "auto", 0, 0,
      "auto|ddp|zero1|zero2|zero3",
      "what is spread over the ranks: nothing; optimizer state; gradients too; "
      "weights too; auto: the cheapest of the last three that fits" },
    { "parallel.shard_degree", SETTING_INT, AT(parallel.shard_degree), "0", 0,
      65536, NULL,
      "of zero3: neighbouring ranks that have all weights together, a divisor "
      "of the ranks; 0: all ranks" },
    { "parallel.prefetch", SETTING_INT, AT(parallel.prefetch), "1", 0, 1024,
      NULL, "of zero3: blocks of weights gathered ahead of their use" },
    { "parallel.expert_degree", SETTING_INT, AT(parallel.expert_degree), "1", 1,
      256, NULL,
      "of zero2 and zero3: neighbouring ranks that share the experts, a "
      "divisor "
      "of model.experts and of the ranks; tokens travel instead of weights" },
    { "parallel.sequence_chunks", SETTING_INT, AT(parallel.sequence_chunks),
      "1", 1, 1024, NULL,
      "of zero2 and zero3: parts of each sequence whose gradients are added "
      "one "
      "after the other, a divisor of data.seq_len" },
    { "parallel.sequence_degree", SETTING_INT, AT(parallel.sequence_degree),
      "1", 1, 1024, NULL,
      "neighbouring ranks that share a microbatch's sequences, a divisor of "
      "parallel.sequence_chunks and of the ranks" },
    { "parallel.reduce_precision", SETTING_CHOICE,
      AT(parallel.reduce_precision), "fp32", 0, 0, "fp32|bf16",
      "of gradients on their way to another rank; bf16 needs zero2 or zero3, "
      "and another determinism than elastic" },
    { "parallel.determinism", SETTING_CHOICE, AT(parallel.determinism),
      "elastic", 0, 0, "elastic|run|fast",
      "elastic: same bits for any number of ranks" },
    { "parallel.exchange", SETTING_CHOICE, AT(parallel.exchange), "auto", 0, 0,
      "auto|nccl|staged",
      "how tensors travel between GPUs; auto: by NCCL, see hardware.fallback; "
      "nccl: also where two ranks seem to share a GPU; staged: through host "
      "memory" },
    { "parallel.slots", SETTING_INT, AT(parallel.slots), "0", 0, 65536, NULL,
      "canonical parts of a global batch, at least the number of ranks; 0: the "
      "largest power of two up to 8 that divides it" },
    { "parallel.timeout_s", SETTING_FLOAT, AT(parallel.timeout_s), "300", 0.1,
      1e6, NULL, "seconds to wait for another rank before naming it" },
    { "parallel.allow_arithmetic_change", SETTING_BOOL,
      AT(parallel.allow_arithmetic_change), "false", 0, 0, NULL,
      "resume with another backend, GPUs' libraries or version of arithmetic "
      "although the bits will differ" },

    { "hardware.threads", SETTING_INT, AT(hardware.threads), "0", 0, 4096, NULL,
      "threads per rank; 0: from affinity and ranks on the node" },
    { "hardware.backend", SETTING_CHOICE, AT(hardware.backend), "auto", 0, 0,
      "auto|cpu|cuda",
      "what computes; auto: the GPU, where there is one, this build can use it "
      "and hardware.kernel_set is auto, else the processor" },
    { "hardware.kernel_set", SETTING_STRING, AT(hardware.kernel_set), "auto", 0,
      0, NULL,
      "of the processor, for tests: auto, avx512, avx2 or generic; decides "
      "speed, never bits" },
    { "hardware.graphs", SETTING_CHOICE, AT(hardware.graphs), "auto", 0, 0,
      "auto|off",
      "of a GPU with ddp and zero1: a microbatch as one launch, not op by op; "
      "the same bits" },
    { "hardware.fallback", SETTING_CHOICE, AT(hardware.fallback), "auto", 0, 0,
      "auto|refuse|warn",
      "where NCCL, cuDNN or cuBLASLt are missing or have nothing for a shape, "
      "ranks share a GPU or GPUs are idle: end with the reason, or go on more "
      "slowly and say so; auto: refuse, with one rank warn" },
    { "hardware.peak_flops", SETTING_FLOAT, AT(hardware.peak_flops), "0", 0,
      1e18, NULL, "FLOP/s of one rank, for mfu; 0: those of its GPU, or measured" },

    { "log.interval", SETTING_INT, AT(log.interval), "1", 1, 1e6, NULL,
      "steps between lines of metrics and progress" },
    { "log.level", SETTING_CHOICE, AT(log.level), "info", 0, 0,
      "error|warn|info|debug", "what goes to stderr" },
};

const int train_settings_count =
    sizeof train_settings_schema / sizeof train_settings_schema[0];

/* What is not given is as the optimizer has it, if it differs from AdamW. */
static void complete_optimizer(struct train_settings *s,
                               const struct settings_origin *origins)
{
    const struct optimizer_ops *optimizer = optimizer_find(s->optimizer.name);
    const struct {
        const char *key;
        double *value, own;
    } list[] = {
        { "optimizer.lr", &s->optimizer.lr, optimizer->defaults.lr },
        { "optimizer.beta2", &s->optimizer.beta2, optimizer->defaults.beta2 },
    };
    for (size_t i = 0; i < sizeof list / sizeof list[0]; i++)
        if (list[i].own > 0 &&
            !settings_given(train_settings_schema, train_settings_count,
                            origins, list[i].key))
            *list[i].value = list[i].own;
}

/* Fills in the automatic values. */
static void settings_complete(struct train_settings *s)
{
    if (s->data.seq_len == 0)
        s->data.seq_len = s->model.max_seq_len;
    if (s->parallel.slots == 0) {
        s->parallel.slots = 1;
        while (s->parallel.slots < 8 &&
               s->train.global_batch % (2 * s->parallel.slots) == 0)
            s->parallel.slots *= 2;
    }
    s->train.microbatch_automatic = s->train.microbatch == 0;
    if (s->train.microbatch_automatic)
        s->train.microbatch = s->train.global_batch / s->parallel.slots;
    if (s->train.global_batch == 0 && s->train.microbatch == 0)
        s->train.microbatch = 1;
}

static enum err load(const struct setting *schema, const char *path,
                     char *const *overrides, int override_count, bool partial,
                     struct train_settings *out)
{
    enum err rc = ERR_OK;
    int count = train_settings_count;
    struct settings_origin *origins = calloc((size_t)count, sizeof *origins);
    if (origins == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    TRY_OUT(settings_load(schema, count, path, overrides, override_count, out,
                          origins));
    TRY_OUT(train_settings_preset(out, origins));
    complete_optimizer(out, origins);
    settings_complete(out);
    rc = train_settings_check(out, partial);
    if (rc == ERR_OK && out->train.microbatch_automatic &&
        out->train.global_batch > 0)
        rc = train_memory_auto(out, &out->train.microbatch);
    if (rc != ERR_OK)
        rc = err_prefix(rc, "%s",
                        settings_blame(schema, count, origins, err_text(),
                                       path != NULL ? path : "command line"));
out:
    free(origins);
    return rc;
}

enum err train_settings_load(const char *path, char *const *overrides,
                             int override_count, struct train_settings *out)
{
    return load(train_settings_schema, path, overrides, override_count, false,
                out);
}

enum err train_settings_load_partial(const char *path, char *const *overrides,
                                     int override_count,
                                     struct train_settings *out)
{
    struct setting *schema = malloc(sizeof train_settings_schema);
    if (schema == NULL)
        return err_set(ERR_MEMORY, "out of memory");
    memcpy(schema, train_settings_schema, sizeof train_settings_schema);
    for (int i = 0; i < train_settings_count; i++) {
        if (schema[i].preset != NULL)
            continue;
        schema[i].min = 0;
        schema[i].preset = schema[i].type == SETTING_INT        ? "0"
                           : schema[i].type == SETTING_DURATION ? "0ba"
                                                                : "";
    }
    enum err rc = load(schema, path, overrides, override_count, true, out);
    free(schema);
    return rc;
}

static const struct setting *settings_find(const char *key)
{
    for (int i = 0; i < train_settings_count; i++)
        if (strcmp(train_settings_schema[i].key, key) == 0)
            return &train_settings_schema[i];
    return NULL;
}

enum err train_settings_print(const struct train_settings *settings,
                              const char *key, char **text)
{
    const struct setting *setting = settings_find(key);
    if (setting == NULL)
        return settings_no_such(train_settings_schema, train_settings_count,
                                key, "--print");
    const char *at = (const char *)settings + setting->offset;
    char number[64];
    const char *value = number;
    switch (setting->type) {
    case SETTING_INT:
        snprintf(number, sizeof number, "%lld",
                 (long long)*(const int64_t *)(const void *)at);
        break;
    case SETTING_FLOAT:
        snprintf(number, sizeof number, "%.17g",
                 *(const double *)(const void *)at);
        break;
    case SETTING_BOOL:
        value = *(const bool *)at ? "true" : "false";
        break;
    case SETTING_DURATION:
        units_format(*(const struct duration *)(const void *)at, number,
                     sizeof number);
        break;
    case SETTING_BYTES:
        units_bytes_format(*(const int64_t *)(const void *)at, number,
                           sizeof number);
        break;
    default:
        value = at;
    }
    *text = strdup(value);
    return *text != NULL ? ERR_OK : err_set(ERR_MEMORY, "out of memory");
}
