/* Names that settings have in Hugging Face's Trainer and models, LLM Foundry
 * and Composer, nanoGPT, Megatron-LM and torchtitan. Only names that
 * settings_nearest() would not find. */
#include "src/base/settings/settings_private.h"

#include <ctype.h>
#include <string.h>
#include <strings.h>

#define LENGTH "as \"1000ba\", \"1e9tok\" or \"2ep\""
#define STEPS "as \"100ba\""
#define RESUMES "a run goes on from its newest checkpoint by itself"
#define NO_WANDB                                                               \
    "nothing is sent to Weights & Biases: use tracking.mlflow, "               \
    "tracking.tensorboard or tracking.csv, or a command in hooks.on_batch_end"
#define NO_CALLBACKS                                                           \
    "there are no callbacks to name: monitor.*, checkpoint.*, finish and "     \
    "hooks.* do what most are for, plugins the rest"
#define EARLY_STOP "( { name = \"early_stop\"; patience = \"2000ba\"; } )"

static const struct {
    const char *name; /* or how it begins, with a * */
    const char *ours; /* NULL: nothing */
    const char *note; /* NULL: the help line of ours says it */
} settings_foreign_names[] = {
    /* batch */
    { "batch_size", "train.global_batch",
      "samples per optimizer step, over all ranks" },
    { "train_batch_size", "train.global_batch",
      "samples per optimizer step, over all ranks" },
    { "global_batch_size", "train.global_batch", NULL },
    { "global_train_batch_size", "train.global_batch", NULL },
    { "per_device_train_batch_size", "train.microbatch",
      "samples computed at once; train.global_batch is that of all ranks" },
    { "per_gpu_train_batch_size", "train.microbatch",
      "samples computed at once; train.global_batch is that of all ranks" },
    { "per_device_eval_batch_size", "train.microbatch", NULL },
    { "device_eval_batch_size", "train.microbatch", NULL },
    { "eval_batch_size", "train.microbatch", NULL },
    { "device_train_microbatch_size", "train.microbatch", NULL },
    { "micro_batch_size", "train.microbatch", NULL },
    { "local_batch_size", "train.microbatch", NULL },
    { "gradient_accumulation_steps", "train.microbatch",
      "what is accumulated follows from it, from train.global_batch and "
      "from the ranks" },
    { "gradient_accumulation", "train.microbatch",
      "what is accumulated follows from it, from train.global_batch and "
      "from the ranks" },
    /* duration */
    { "steps", "train.max_duration", LENGTH },
    { "max_steps", "train.max_duration", LENGTH },
    { "num_steps", "train.max_duration", LENGTH },
    { "total_steps", "train.max_duration", LENGTH },
    { "train_steps", "train.max_duration", LENGTH },
    { "max_iters", "train.max_duration", LENGTH },
    { "train_iters", "train.max_duration", LENGTH },
    { "train_samples", "train.max_duration", "as \"5000sp\"" },
    { "train_tokens", "train.max_duration", "as \"1e9tok\"" },
    { "max_train_tokens", "train.max_duration", "as \"1e9tok\"" },
    { "epochs", "train.max_duration", "as \"2ep\"" },
    { "max_epochs", "train.max_duration", "as \"2ep\"" },
    { "num_epochs", "train.max_duration", "as \"2ep\"" },
    { "num_train_epochs", "train.max_duration", "as \"2ep\"" },
    { "global_seed", "train.seed", NULL },
    { "random_seed", "train.seed", NULL },
    { "data_seed", "train.seed", NULL },
    /* optimizer */
    { "learning_rate", "optimizer.lr", NULL },
    { "max_lr", "optimizer.lr", NULL },
    { "peak_lr", "optimizer.lr", NULL },
    { "adam_beta1", "optimizer.beta1", NULL },
    { "adam_beta2", "optimizer.beta2", NULL },
    { "adam_eps", "optimizer.eps", NULL },
    { "adam_epsilon", "optimizer.eps", NULL },
    { "epsilon", "optimizer.eps", NULL },
    { "optim", "optimizer.name", NULL },
    { "wd", "optimizer.weight_decay", NULL },
    { "max_grad_norm", "train.clip_norm", NULL },
    { "max_norm", "train.clip_norm", NULL },
    { "grad_clip", "train.clip_norm", NULL },
    { "clip_grad", "train.clip_norm", NULL },
    { "grad_norm_clip", "train.clip_norm", NULL },
    { "gradient_clip_val", "train.clip_norm", NULL },
    { "clipping_threshold", "train.clip_norm", NULL },
    /* schedule */
    { "lr_scheduler_type", "scheduler.name", NULL },
    { "lr_scheduler", "scheduler.name", NULL },
    { "lr_decay_style", "scheduler.name", NULL },
    { "decay_lr", "scheduler.name", NULL },
    { "warmup_steps", "scheduler.warmup", STEPS },
    { "num_warmup_steps", "scheduler.warmup", STEPS },
    { "warmup_iters", "scheduler.warmup", STEPS },
    { "lr_warmup_iters", "scheduler.warmup", STEPS },
    { "lr_warmup_steps", "scheduler.warmup", STEPS },
    { "lr_warmup_samples", "scheduler.warmup", "as \"100sp\"" },
    { "lr_warmup_fraction", "scheduler.warmup", "as \"0.01dur\"" },
    { "warmup_ratio", "scheduler.warmup", "as \"0.01dur\"" },
    { "t_warmup", "scheduler.warmup", NULL },
    { "lr_decay_iters", "scheduler.t_max", "as \"1000ba\"" },
    { "lr_decay_steps", "scheduler.t_max", "as \"1000ba\"" },
    { "lr_decay_samples", "scheduler.t_max", "as \"5000sp\"" },
    { "min_lr", "scheduler.alpha_final", "final learning rate / peak" },
    { "min_lr_ratio", "scheduler.alpha_final", NULL },
    { "min_lr_rate", "scheduler.alpha_final", NULL },
    { "min_lr_factor", "scheduler.alpha_final", NULL },
    { "alpha_f", "scheduler.alpha_final", NULL },
    /* model */
    { "n_embd", "model.d_model", NULL },
    { "hidden_size", "model.d_model", NULL },
    { "hidden_dim", "model.d_model", NULL },
    { "dim", "model.d_model", NULL },
    { "num_attention_heads", "model.n_heads", NULL },
    { "num_heads", "model.n_heads", NULL },
    { "num_key_value_heads", "model.n_kv_heads", NULL },
    { "num_query_groups", "model.n_kv_heads", NULL },
    { "kv_n_heads", "model.n_kv_heads", NULL },
    { "n_layer", "model.n_layers", NULL },
    { "num_layers", "model.n_layers", NULL },
    { "num_hidden_layers", "model.n_layers", NULL },
    { "intermediate_size", "model.ffn_width", NULL },
    { "ffn_hidden_size", "model.ffn_width", NULL },
    { "n_positions", "model.max_seq_len", NULL },
    { "max_position_embeddings", "model.max_seq_len", NULL },
    { "padded_vocab_size", "model.vocab_size", NULL },
    { "normalization", "model.norm", NULL },
    { "norm_type", "model.norm", NULL },
    { "rms_norm_eps", "model.norm_eps", NULL },
    { "layer_norm_eps", "model.norm_eps", NULL },
    { "layer_norm_epsilon", "model.norm_eps", NULL },
    { "layernorm_epsilon", "model.norm_eps", NULL },
    { "hidden_act", "model.activation", NULL },
    { "activation_function", "model.activation", NULL },
    { "swiglu", "model.ffn", "\"glu\", with model.activation = \"silu\"" },
    { "ffn_type", "model.ffn", NULL },
    { "no_bias", "model.bias", "the opposite" },
    { "add_bias_linear", "model.bias", NULL },
    { "add_qkv_bias", "model.qkv_bias", NULL },
    { "attention_bias", "model.qkv_bias", "and model.out_bias" },
    { "rope_scaling_factor", "model.rope_factor", NULL },
    { "original_max_position_embeddings", "model.rope_original_len", NULL },
    { "tie_word_embeddings", "model.tied", NULL },
    { "untie_embeddings_and_output_weights", "model.tied", "the opposite" },
    { "alibi", "model.positions", "\"alibi\"" },
    { "rope", "model.positions", "\"rope\"" },
    { "learned_pos_emb", "model.positions", "\"learned\"" },
    { "position_embedding_type", "model.positions", NULL },
    { "qk_ln", "model.qk_norm", NULL },
    { "attn_qk_ln", "model.qk_norm", NULL },
    { "qk_layernorm", "model.qk_norm", NULL },
    { "emb_pdrop", "model.dropout_embedding", NULL },
    { "embd_pdrop", "model.dropout_embedding", NULL },
    { "attn_pdrop", "model.dropout_attention", NULL },
    { "attention_dropout", "model.dropout_attention", NULL },
    { "resid_pdrop", "model.dropout_residual", NULL },
    { "hidden_dropout", "model.dropout_residual", NULL },
    { "dropout", "model.dropout_residual",
      "model.dropout_embedding and model.dropout_attention are the others" },
    { "initializer_range", "model.init_std", "with model.init = \"baseline\"" },
    { "init_method_std", "model.init_std", "with model.init = \"baseline\"" },
    { "num_experts", "model.experts", NULL },
    { "num_local_experts", "model.experts", NULL },
    { "moe_num_experts", "model.experts", NULL },
    { "num_experts_per_tok", "model.experts_top_k", NULL },
    { "moe_router_topk", "model.experts_top_k", NULL },
    { "moe_top_k", "model.experts_top_k", NULL },
    { "router_aux_loss_coef", "model.balance_weight", NULL },
    { "moe_aux_loss_coeff", "model.balance_weight", NULL },
    { "moe_loss_weight", "model.balance_weight", NULL },
    { "moe_jitter_eps", "model.router_jitter", NULL },
    { "flavor", "model.preset", NULL },
    { "model_name", "model.preset", NULL },
    { "model_type", "model.preset", NULL },
    { "model_name_or_path", "model.preset", NULL },
    { "pretrained_model_name_or_path", "model.preset", NULL },
    /* data */
    { "block_size", "data.seq_len", NULL },
    { "seq_length", "data.seq_len", NULL },
    { "sequence_length", "data.seq_len", NULL },
    { "max_length", "data.seq_len", NULL },
    { "dataset", "data.train", NULL },
    { "dataset_path", "data.train", NULL },
    { "dataset_name", "data.train", NULL },
    { "data_path", "data.train", NULL },
    { "data_dir", "data.train", NULL },
    { "train_data", "data.train", NULL },
    { "train_loader", "data.train", NULL },
    { "train_file", "data.train", NULL },
    { "eval_loader", "data.eval", NULL },
    { "eval_data", "data.eval", NULL },
    { "validation_file", "data.eval", NULL },
    /* run, checkpoints, evaluation, log */
    { "output_dir", "run.dir", NULL },
    { "out_dir", "run.dir", NULL },
    { "save_folder", "run.dir", NULL },
    { "dump_folder", "run.dir", NULL },
    { "save", "run.dir", NULL },
    { "run_name", "run.dir", NULL },
    { "load", "run.dir", RESUMES },
    { "load_path", "run.dir", RESUMES },
    { "resume", "run.dir", RESUMES },
    { "autoresume", "run.dir", RESUMES },
    { "resume_from_checkpoint", "run.dir", RESUMES },
    { "init_from", "run.dir", RESUMES },
    { "save_steps", "checkpoint.interval", STEPS },
    { "save_every", "checkpoint.interval", STEPS },
    { "save_interval", "checkpoint.interval", STEPS },
    { "save_total_limit", "checkpoint.keep", NULL },
    { "save_num_checkpoints_to_keep", "checkpoint.keep", NULL },
    { "keep_latest_k", "checkpoint.keep", NULL },
    { "async_save", "checkpoint.async", NULL },
    { "async_mode", "checkpoint.async", NULL },
    { "eval_steps", "eval.interval", STEPS },
    { "eval_every", "eval.interval", STEPS },
    { "eval_iters", "eval.samples", NULL },
    { "eval_subset_num_batches", "eval.samples", NULL },
    { "logging_steps", "log.interval", NULL },
    { "log_every", "log.interval", NULL },
    { "log_freq", "log.interval", NULL },
    { "console_log_interval", "log.interval", NULL },
    { "python_log_level", "log.level", NULL },
    /* precision, memory, ranks */
    { "bf16", "train.precision", "\"bf16\"" },
    { "fp16", "train.precision", "\"bf16\"; there is no fp16" },
    { "dtype", "train.precision", NULL },
    { "amp", "train.precision", NULL },
    { "mixed_precision", "train.precision", NULL },
    { "gradient_checkpointing", "memory.checkpoint", "\"block\"" },
    { "activation_checkpointing", "memory.checkpoint", "\"block\"" },
    { "fsdp_activation_checkpointing", "memory.checkpoint", "\"block\"" },
    { "recompute_granularity", "memory.checkpoint", "\"block\"" },
    { "fsdp", "parallel.strategy", "\"zero3\"" },
    { "fsdp_config", "parallel.strategy", "\"zero3\"" },
    { "deepspeed", "parallel.strategy", NULL },
    { "zero_stage", "parallel.strategy", NULL },
    { "sharding_strategy", "parallel.strategy", NULL },
    { "use_distributed_optimizer", "parallel.strategy", "\"zero1\"" },
    { "data_parallel_shard_degree", "parallel.shard_degree", NULL },
    { "context_parallel_size", "parallel.sequence_degree", NULL },
    { "context_parallel_degree", "parallel.sequence_degree", NULL },
    { "expert_model_parallel_size", "parallel.expert_degree", NULL },
    { "expert_parallel_degree", "parallel.expert_degree", NULL },
    { "dist_timeout", "parallel.timeout_s", NULL },
    { "deterministic", "parallel.determinism", NULL },
    { "tensor_model_parallel_size", NULL,
      "there is no tensor parallelism: parallel.strategy = \"zero3\" "
      "spreads the weights" },
    { "tensor_parallel_degree", NULL,
      "there is no tensor parallelism: parallel.strategy = \"zero3\" "
      "spreads the weights" },
    { "pipeline_model_parallel_size", NULL,
      "there is no pipeline parallelism: parallel.strategy = \"zero3\" "
      "spreads the weights" },
    { "pipeline_parallel_degree", NULL,
      "there is no pipeline parallelism: parallel.strategy = \"zero3\" "
      "spreads the weights" },
    { "pipeline", NULL,
      "there is no pipeline parallelism: parallel.strategy = \"zero3\" "
      "spreads the weights" },
    /* what others have beside the loop */
    { "loggers.wandb*", NULL, NO_WANDB },
    { "wandb*", NULL, NO_WANDB },
    { "report_to", "tracking.tensorboard",
      "true; or tracking.mlflow, tracking.csv, tracking.prometheus; Weights & "
      "Biases is not here" },
    { "loggers*", "tracking.tensorboard",
      "true; or tracking.mlflow, tracking.csv, tracking.prometheus" },
    { "callbacks*", NULL, NO_CALLBACKS },
    { "early_stopping*", "finish", EARLY_STOP },
    { "eval_loaders*", "data.eval",
      "one set; others after the run: tessera-eval RUN --perplexity SET" },
    { "icl_tasks*", "eval.tasks", NULL },
    { "peft_config*", "lora.rank", "with lora.alpha and lora.targets" },
    { "lora_r", "lora.rank", NULL },
    { "model.name*", "model.preset", "a shape: \"mpt-125m\", \"llama3-8b\"" },
    { "device", "hardware.backend", NULL },
    { "num_threads", "hardware.threads", NULL },
    { "num_workers", "hardware.threads",
      "of a rank; data is read without workers" },
};

/* Choices of theirs, with what they are here. */
static const struct {
    const char *key, *theirs, *ours;
} settings_foreign_choices[] = {
    { "optimizer.name", "decoupled_adamw", "\"adamw\"" },
    { "optimizer.name", "decoupled_lionw", "\"lion\"" },
    { "optimizer.name", "lionw", "\"lion\"" },
    { "optimizer.name", "adamw_torch", "\"torch_adamw\"" },
    { "optimizer.name", "adamw_torch_fused", "\"torch_adamw\"" },
    { "optimizer.name", "adamw_hf", "\"torch_adamw\"" },
    { "scheduler.name", "cosine_with_warmup",
      "\"cosine\", with scheduler.warmup" },
    { "scheduler.name", "constant_with_warmup",
      "\"constant\", with scheduler.warmup" },
    { "scheduler.name", "linear_decay_with_warmup",
      "\"linear\", with scheduler.warmup" },
    { "scheduler.name", "inv_sqrt_with_warmup",
      "\"inverse_sqrt\", with scheduler.warmup" },
    { "scheduler.name", "cosine_with_restarts", "\"cosine_restarts\"" },
    { "scheduler.name", "cosine_with_min_lr",
      "\"cosine\", with scheduler.alpha_final" },
    { "scheduler.name", "warmup_stable_decay", "\"wsd\"" },
    { "train.precision", "amp_bf16", "\"bf16\"" },
    { "train.precision", "bfloat16", "\"bf16\"" },
    { "train.precision", "amp_fp8", "\"fp8\"" },
    { "train.precision", "amp_fp16", "\"bf16\"; there is no fp16" },
    { "train.precision", "fp16", "\"bf16\"; there is no fp16" },
    { "train.precision", "float32", "\"fp32\"" },
    { "parallel.strategy", "FULL_SHARD", "\"zero3\"" },
    { "parallel.strategy", "SHARD_GRAD_OP", "\"zero2\"" },
    { "parallel.strategy", "HYBRID_SHARD",
      "\"zero3\", with parallel.shard_degree" },
    { "parallel.strategy", "NO_SHARD", "\"ddp\"" },
};

const char *settings_foreign_choice(const char *key, const char *text)
{
    size_t count =
        sizeof settings_foreign_choices / sizeof settings_foreign_choices[0];
    for (size_t i = 0; i < count; i++)
        if (strcmp(settings_foreign_choices[i].key, key) == 0 &&
            strcasecmp(settings_foreign_choices[i].theirs, text) == 0)
            return settings_foreign_choices[i].ours;
    return NULL;
}

static bool settings_foreign_is(const char *name, const char *key,
                                const char *last)
{
    size_t begin = strcspn(name, "*");
    if (name[begin] == '*')
        return strncmp(name, key, begin) == 0 ||
               strncmp(name, last, begin) == 0;
    return strcmp(name, last) == 0;
}

/* Makes lr_decay of "--Lr-Decay". */
static void settings_foreign_plain(const char *key,
                                   char out[SETTINGS_KEY_BYTES])
{
    key += strspn(key, "-");
    size_t i = 0;
    for (; i < SETTINGS_KEY_BYTES - 1 && key[i] != '\0'; i++)
        out[i] = key[i] == '-' ? '_' : (char)tolower((unsigned char)key[i]);
    out[i] = '\0';
}

bool settings_foreign(const struct settings_table *table, const char *key,
                      const char **ours, const char **note)
{
    char plain[SETTINGS_KEY_BYTES];
    settings_foreign_plain(key, plain);
    const char *dot = strrchr(plain, '.');
    const char *last = dot == NULL ? plain : dot + 1;
    size_t count =
        sizeof settings_foreign_names / sizeof settings_foreign_names[0];
    for (size_t i = 0; i < count; i++) {
        *ours = settings_foreign_names[i].ours;
        *note = settings_foreign_names[i].note;
        if (!settings_foreign_is(settings_foreign_names[i].name, plain, last))
            continue;
        /* a schema of other settings has these names for something else */
        return *ours == NULL ? settings_is_group(table, "parallel")
                             : settings_find(table, *ours) >= 0;
    }
    return false;
}
