/* Names that settings have in Hugging Face's Trainer and models, LLM Foundry
 * and Composer, nanoGPT, Megatron-LM and torchtitan. Only names that
 * settings_nearest() would not find. */
#include "src/base/settings_private.h"

#include <ctype.h>
#include <string.h>

#define LENGTH "as \"1000ba\", \"1e9tok\" or \"2ep\""
#define STEPS "as \"100ba\""
#define RESUMES "a run goes on from its newest checkpoint by itself"

static const struct {
    const char *name;
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
    { "device", "hardware.backend", NULL },
    { "num_threads", "hardware.threads", NULL },
    { "num_workers", "hardware.threads",
      "of a rank; data is read without workers" },
};

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
        if (strcmp(settings_foreign_names[i].name, last) != 0)
            continue;
        /* a schema of other settings has these names for something else */
        return *ours == NULL ? settings_is_group(table, "parallel")
                             : settings_find(table, *ours) >= 0;
    }
    return false;
}
