/* The settings of a training run but for the model's
 * (src/model/model_config.h): groups of rows, each of which is the entry of the
 * table and the field of struct train_settings (src/base/settings/settings.h),
 * and the names of what can be chosen. A new setting is a row here. */
#pragma once

#include "src/base/settings/settings.h"
#include "src/comm/comm_tensors.h"
#include "src/data/set/order.h"
#include "src/model/model_memory.h"
#include "src/parallel/replica.h"
#include "src/tracking/tracking_rows.h"
#include "src/train/settings/finish_settings.h"
#include "src/train/settings/algorithm_settings.h"
#include "src/train/settings/train_settings_checkpoint.h"
#include "src/train/settings/train_settings_optimizer.h"
#include "src/train/settings/train_settings_watch.h"

#define TRAIN_SPIKE_BUDGET_MAX 1000
#define TRAIN_SAMPLES_MAX 1e9 /* of a batch: times the longest still exact */

enum data_change { CHANGE_REFUSE, CHANGE_CONTINUE };
static const char *const data_change_names[] = { "refuse", "continue", NULL };

enum weights_tokenizer { WEIGHTS_TOKENIZER_SAME, WEIGHTS_TOKENIZER_ANY };
static const char *const weights_tokenizer_names[] = { "same", "any", NULL };

enum data_sampling { SAMPLING_BALANCED, SAMPLING_FIXED };
static const char *const data_sampling_names[] = { "balanced", "fixed", NULL };

static const char *const streaming_batching_names[] = { "random", "stratified",
                                                        "per_stream", NULL };

enum data_too_long { TOO_LONG_REFUSE, TOO_LONG_TRUNCATE };
static const char *const data_too_long_names[] = { "refuse", "truncate", NULL };

enum data_verify { VERIFY_AUTO, VERIFY_SIZES, VERIFY_BYTES };
static const char *const data_verify_names[] = { "auto", "sizes", "bytes",
                                                 NULL };

enum train_precision {
    PRECISION_AUTO,
    PRECISION_FP32,
    PRECISION_BF16,
    PRECISION_FP8
};
static const char *const train_precision_names[] = { "auto", "fp32", "bf16",
                                                     "fp8", NULL };

enum train_on_spike {
    ON_SPIKE_WARN,
    ON_SPIKE_STOP,
    ON_SPIKE_SKIP,
    ON_SPIKE_ROLLBACK
};
static const char *const train_on_spike_names[] = { "warn", "stop", "skip",
                                                    "rollback", NULL };

enum train_on_nan { ON_NAN_STOP, ON_NAN_SKIP, ON_NAN_ROLLBACK };
static const char *const train_on_nan_names[] = { "stop", "skip", "rollback",
                                                  NULL };

enum checkpoint_writers { WRITERS_AUTO, WRITERS_RANK, WRITERS_NODE };
static const char *const checkpoint_writers_names[] = { "auto", "rank", "node",
                                                        NULL };

enum checkpoint_redundancy { REDUNDANCY_PARTNER, REDUNDANCY_XOR };
static const char *const checkpoint_redundancy_names[] = { "partner", "xor",
                                                           NULL };

enum parallel_reduce { REDUCE_FP32, REDUCE_BF16 };
static const char *const parallel_reduce_names[] = { "fp32", "bf16", NULL };

enum parallel_determinism {
    DETERMINISM_ELASTIC,
    DETERMINISM_RUN,
    DETERMINISM_FAST
};
static const char *const parallel_determinism_names[] = { "elastic", "run",
                                                          "fast", NULL };

enum hardware_backend { BACKEND_AUTO, BACKEND_CPU, BACKEND_CUDA };
static const char *const hardware_backend_names[] = { "auto", "cpu", "cuda",
                                                      NULL };

enum hardware_graphs { GRAPHS_AUTO, GRAPHS_OFF };
static const char *const hardware_graphs_names[] = { "auto", "off", NULL };

enum hardware_fallback { FALLBACK_AUTO, FALLBACK_REFUSE, FALLBACK_WARN };
static const char *const hardware_fallback_names[] = { "auto", "refuse", "warn",
                                                       NULL };

#define RUN_SETTINGS(S)                                                        \
    S(run, PATH, dir, NULL, 0,                                                 \
      "run directory: checkpoints, metrics, ledger, resolved configuration",   \
      .theirs = {                                                              \
          ALSO("output_dir out_dir save_folder dump_folder save run_name"),    \
          THEIRS("load load_path resume autoresume resume_from_checkpoint "    \
                 "init_from",                                                  \
                 "a run goes on from its newest checkpoint by itself") })      \
    S(run, STRING, mode, "", 0,                                                \
      "permissions of the run's folders, such as 0750 or 0770, files "         \
      "alike; empty: TESSERA_RUN_MODE, or what the umask leaves")              \
    S(run, STRING, group, "", 0,                                               \
      "group that the run directory and all in it belong to; empty: yours")

/* What is no shape, but of the group "model" (TRAIN_GROUPS). */
#define START_SETTINGS(S)                                                      \
    S(model, PATH, weights, "", TRAIN_DECIDES_START | SETTING_ADDRESS,         \
      "the first start's weights: a checkpoint, a run directory (its newest "  \
      "good one), a Hugging Face folder or a GGUF file, or such at "           \
      "s3://BUCKET/PREFIX; optimizer and schedule begin anew; empty: fresh "   \
      "weights")                                                               \
    S(model, STRING, weights_ignore, "", TRAIN_DECIDES_START,                  \
      "globs of names, with blanks between: tensors of model.weights that "    \
      "are left out, and of the model that keep fresh values")                 \
    S(model, CHOICE(weights_tokenizer), weights_tokenizer, "same", 0,          \
      "that the data of such a start are made with: the weights' own, or any " \
      "(tokens that mean something else to them are learned anew)")            \
    S(model, STRING, freeze, "", SETTING_STAYS_ADDED,                          \
      "globs of names, with blanks between: parameters that do not train "     \
      "(\"transformer.wte.* *.blocks.?.*\"); empty: none, with lora.rank all " \
      "but the adapters")

#define MEMORY_SETTINGS(S)                                                     \
    S(memory, STRING, checkpoint, "none", TRAIN_STAYS_IF_PACKED,               \
      "what backward computes again: \"block: all\", \"ffn: first-4; "         \
      "attention: last-2\" (block, attention, norm_attn_norm, ffn, "           \
      "activation, norm)",                                                     \
      .theirs = {                                                              \
          THEIRS("gradient_checkpointing activation_checkpointing "            \
                 "fsdp_activation_checkpointing recompute_granularity",        \
                 "\"block\"") })                                               \
    S(memory, CHOICE(packing), compression, "none", SETTING_STAYS,             \
      "what forward keeps for backward, in fewer bits")                        \
    S(memory, BYTES(0, SETTINGS_LARGE), limit, "none", 0,                      \
      "memory that a rank may plan for, of the GPU with cuda: 80GiB; none: "   \
      "what there is")

#define DATA_SETTINGS(S)                                                       \
    S(data, PATH, train, NULL, SETTING_LOCAL | SETTING_ADDRESS,                \
      "training data set: a folder made by tessera-data, or the address of "   \
      "one (s3://, https://, http://, file://); with data.mixture what its "   \
      "data sets are in",                                                      \
      .theirs = { ALSO("dataset dataset_path dataset_name data_path data_dir " \
                       "train_data train_loader train_file") })                \
    S(data, STRING, mixture, "", TRAIN_STAYS_OF_ORDER,                         \
      "several data sets by weight, \"web 0.7, code 0.3\", each a folder in "  \
      "data.train or NAME=FOLDER; weights change with \"to W at TIME\" and "   \
      "\"then W at TIME\"")                                                    \
    S(data, CHOICE(data_change), change, "refuse", 0,                          \
      "other data, mixture or order than the run had: refuse them, or "        \
      "continue with them from here on")                                       \
    S(data, CHOICE(order_kind), order, "canonical", TRAIN_STAYS_OF_ORDER,      \
      "which samples a step reads: canonical is computed from train.seed, "    \
      "the others are the Streaming library's")                                \
    S(data, INT(0, SETTINGS_LARGE), shuffle_seed, "9176",                      \
      TRAIN_STAYS_OF_ORDER, "seed of Streaming's orders (shuffle_seed)")       \
    S(data, INT(0, SETTINGS_LARGE), shuffle_block, "auto",                     \
      TRAIN_STAYS_OF_ORDER | SETTING_AUTO,                                     \
      "samples that py1e and py1br mix (shuffle_block_size); auto: "           \
      "Streaming's, 4e6 / data.canonical_nodes, at least 262144")              \
    S(data, INT(0, 65536), canonical_nodes, "auto",                            \
      TRAIN_STAYS_OF_ORDER | SETTING_AUTO,                                     \
      "nodes that Streaming's orders are made for (num_canonical_nodes); "     \
      "auto: Streaming's for one node, 64 with py1s and py2s, else 1")         \
    S(data, CHOICE(data_sampling), sampling, "balanced", TRAIN_STAYS_OF_ORDER, \
      "what Streaming's orders take of a set that is not read whole: other "   \
      "samples in every epoch, or the same (sampling_method)")                 \
    S(data, CHOICE(streaming_batching), batching, "random",                    \
      TRAIN_STAYS_OF_ORDER,                                                    \
      "how Streaming's orders mix the sets of data.mixture into batches "      \
      "(batching_method)")                                                     \
    S(data, INT(0, SETTINGS_LARGE), epoch_size, "0", TRAIN_STAYS_OF_ORDER,     \
      "samples of an epoch of Streaming's orders; 0: as many as there are, "   \
      "or as data.mixture says")                                               \
    S(data, PATH, eval, "", SETTING_LOCAL | SETTING_ADDRESS,                   \
      "held-out data set; empty: no evaluation",                               \
      .theirs = { ALSO("eval_loader eval_data validation_file"),               \
                  THEIRS("eval_loaders*",                                      \
                         "one set; eval.sets has the others by name, "         \
                         "as \"web=FOLDER, code=FOLDER\"") })                  \
    S(data, INT(0, 1048576), seq_len, "0", SETTING_STAYS,                      \
      "tokens per sample; 0: model.max_seq_len",                               \
      .theirs = { ALSO("block_size seq_length sequence_length max_length") })  \
    S(data, CHOICE(data_too_long), too_long, "refuse", 0,                      \
      "samples of more than data.seq_len tokens")                              \
    S(data, CHOICE(data_verify), verify, "auto", 0,                            \
      "what is checked of shards at the start; bytes: their checksums, "       \
      "each rank its share; auto: bytes up to 256 MiB a rank; those in a "     \
      "cache by their bytes when they are first read, but with sizes")         \
    S(data, PATH, cache, "", SETTING_LOCAL,                                    \
      "folder on every node for shards that are fetched or unpacked; it "      \
      "stays; empty: one of the job's in TMPDIR or /tmp, which is removed")    \
    S(data, BYTES(0, SETTINGS_LARGE), cache_limit, "none", SETTING_LOCAL,      \
      "of the shards there, of each data set: 200GiB; those used least "       \
      "recently are removed; none: no limit")                                  \
    S(data, FLOAT(0.1, 1e6), remote_deadline, "300", SETTING_LOCAL,            \
      "seconds that a shard may take to arrive, and one more for each MiB; "   \
      "and a file or part of one on its way to or from checkpoint.mirror")     \
    S(data, INT(0, 64), prefetch, "2", SETTING_LOCAL,                          \
      "microbatches that a thread reads ahead of their use; 0: none")

#define TRAIN_SETTINGS(S)                                                      \
    S(train, DURATION, max_duration, NULL, SETTING_DECIDES,                    \
      "length of the run: ba, tok, sp, ep or sec",                             \
      .theirs = { THEIRS("steps max_steps num_steps total_steps train_steps "  \
                         "max_iters train_iters",                              \
                         "as \"1000ba\", \"1e9tok\" or \"2ep\""),              \
                  THEIRS("train_samples", "as \"5000sp\""),                    \
                  THEIRS("train_tokens max_train_tokens", "as \"1e9tok\""),    \
                  THEIRS("epochs max_epochs num_epochs num_train_epochs",      \
                         "as \"2ep\"") })                                      \
    S(train, INT(1, TRAIN_SAMPLES_MAX), global_batch, NULL, SETTING_STAYS,     \
      "samples per optimizer step, over all ranks",                            \
      .theirs = { THEIRS("batch_size train_batch_size",                        \
                         "samples per optimizer step, over all ranks"),        \
                  ALSO("global_batch_size global_train_batch_size") })         \
    S(train, INT(0, TRAIN_SAMPLES_MAX), microbatch, "auto",                    \
      SETTING_STAYS | SETTING_AUTO,                                            \
      "samples computed at once (a leaf); auto: a whole slot, or the largest " \
      "part that fits memory.limit and, in a new run, the machine; any other " \
      "run that does not fit ends and says what would",                        \
      .theirs = {                                                              \
          THEIRS("per_device_train_batch_size per_gpu_train_batch_size",       \
                 "samples computed at once; train.global_batch is that of "    \
                 "all ranks"),                                                 \
          ALSO("per_device_eval_batch_size device_eval_batch_size "            \
               "eval_batch_size device_train_microbatch_size "                 \
               "micro_batch_size local_batch_size"),                           \
          THEIRS("gradient_accumulation_steps gradient_accumulation",          \
                 "what is accumulated follows from it, from "                  \
                 "train.global_batch and from the ranks") })                   \
    S(train, INT(0, SETTINGS_LARGE), seed, "17", SETTING_STAYS,                \
      "seed of weights and sample order",                                      \
      .theirs = { ALSO("global_seed random_seed data_seed") })                 \
    S(train, CHOICE(train_precision), precision, "auto", SETTING_STAYS,        \
      "of weights and activations at work, beside fp32 masters; auto: bf16 "   \
      "with cuda, fp32 with cpu, which has no other; fp8: bf16, but 8 bits "   \
      "in the products of the blocks",                                         \
      .theirs = { THEIRS("bf16", "\"bf16\""),                                  \
                  THEIRS("fp16", "\"bf16\"; there is no fp16"),                \
                  ALSO("dtype amp mixed_precision"),                           \
                  CHOICES("amp_bf16 bfloat16", "\"bf16\""),                    \
                  CHOICES("amp_fp8", "\"fp8\""),                               \
                  CHOICES("amp_fp16 fp16", "\"bf16\"; there is no fp16"),      \
                  CHOICES("float32", "\"fp32\"") })                            \
    S(train, FLOAT(0, SETTINGS_LARGE), clip_norm, "1.0", SETTING_DECIDES,      \
      "limit of the gradient's global L2 norm; 0: no clipping",                \
      .theirs = {                                                              \
          ALSO("max_grad_norm max_norm grad_clip clip_grad grad_norm_clip "    \
               "gradient_clip_val clipping_threshold") })                      \
    S(train, CHOICE(train_on_spike), on_spike, "warn", SETTING_DECIDES,        \
      "at a step far beyond the last 32: a warning; the end of the run; no "   \
      "update; back to the last checkpoint, on with the data behind it")       \
    S(train, FLOAT(0, SETTINGS_LARGE), spike_loss, "2", SETTING_DECIDES,       \
      "a loss so many times their median is far beyond; 0: none is")           \
    S(train, FLOAT(0, SETTINGS_LARGE), spike_norm, "10", SETTING_DECIDES,      \
      "and so is such a gradient norm; 0: none is")                            \
    S(train, CHOICE(train_on_nan), on_nan, "stop", TRAIN_DECIDES_ADDED,        \
      "at a loss or gradient norm that is no number, as on_spike")             \
    S(train, INT(0, TRAIN_SPIKE_BUDGET_MAX), spike_budget, "3",                \
      TRAIN_DECIDES_ADDED,                                                     \
      "updates left out and rollbacks that a run may need in spike_window; "   \
      "it ends when it needs more")                                            \
    S(train, DURATION, spike_window, "1000ba", TRAIN_DECIDES_ADDED,            \
      "the last steps in which train.spike_budget counts")                     \
    S(train, STRING, profile, "", 0,                                           \
      "steps whose ops, exchanges, reading and saving are timed, "             \
      "\"10ba-12ba\" or several with commas: a table in the log, and a trace " \
      "for each rank in the run directory's profile; empty: none")

#define LORA_SETTINGS(S)                                                       \
    S(lora, INT(0, 4096), rank, "0", SETTING_STAYS_ADDED,                      \
      "of adapters (LoRA), which train instead of the model; 0: none",         \
      .theirs = { THEIRS("peft_config*", "with lora.alpha and lora.targets"),  \
                  ALSO("lora_r") })                                            \
    S(lora, FLOAT(1e-6, 1e6), alpha, "16", SETTING_STAYS_ADDED,                \
      "what an adapter adds is multiplied by this / lora.rank")                \
    S(lora, FLOAT(0, 0.99), dropout, "0", SETTING_STAYS_ADDED,                 \
      "probability of dropping an element of what an adapter reads")           \
    S(lora, STRING, targets, "*", SETTING_STAYS_ADDED,                         \
      "linear layers that get adapters, by globs of their names: q_proj, "     \
      "k_proj, v_proj, o_proj, gate_proj, up_proj, down_proj, or with "        \
      "transformer.blocks.N.attn. or .ffn. before it; experts have none")

#define EVAL_SETTINGS(S)                                                       \
    S(eval, DURATION, interval, "1dur", 0,                                     \
      "between evaluations on data.eval, of which the last step has one in "   \
      "any case (0ba: it alone)",                                              \
      .theirs = { THEIRS("eval_steps eval_every", "as \"100ba\"") })           \
    S(eval, STRING, sets, "", 0,                                               \
      "further held-out sets, \"web, code=FOLDER\", as data.mixture has them") \
    S(eval, INT(0, SETTINGS_LARGE), samples, "0", 0,                           \
      "samples of each set per evaluation; 0: all",                            \
      .theirs = { ALSO("eval_iters eval_subset_num_batches") })                \
    S(eval, STRING, tasks, "", 0,                                              \
      "in-context tasks to score, \"KIND:FILE:SHOTS ...\", as tessera-eval "   \
      "has them",                                                              \
      .theirs = { ALSO("icl_tasks*") })                                        \
    S(eval, PATH, gauntlet, "", 0,                                             \
      "a file of such tasks with scores of their categories")                  \
    S(eval, PATH, tasks_data, "", 0,                                           \
      "folder of the gauntlet's files; empty: its own")                        \
    S(eval, DURATION, tasks_interval, "1dur", 0,                               \
      "between scorings of eval.tasks and eval.gauntlet, of which the last "   \
      "step has one in any case (0ba: it alone)")                              \
    S(eval, INT(0, SETTINGS_LARGE), tasks_limit, "0", 0,                       \
      "the first so many examples of each task; 0: all")                       \
    S(eval, INT(1, 65536), tasks_batch, "8", 0,                                \
      "examples that a rank computes together")

#define GENERATE_SETTINGS(S)                                                   \
    S(generate, PATH, prompts, "", 0,                                          \
      "file of prompts that the model continues while it is trained, into "    \
      "samples.jsonl: one on each line, or of a .jsonl the texts "             \
      "\"prompt\"; empty: none")                                               \
    S(generate, DURATION, interval, "1dur", 0,                                 \
      "between these, of which the last step has one in any case (0ba: it "    \
      "alone)")                                                                \
    S(generate, INT(1, 65536), max_tokens, "64", 0,                            \
      "that are added to each prompt at most")                                 \
    S(generate, FLOAT(0, 1e6), temperature, "0", 0,                            \
      "of drawing them, from train.seed; 0: the most probable ones")

#define PARALLEL_SETTINGS(S)                                                   \
    S(parallel, CHOICE(replica_strategy), strategy, "auto",                    \
      TRAIN_STAYS_IF_RUN,                                                      \
      "what is spread over the ranks: nothing; optimizer state; gradients "    \
      "too; weights too; auto: the cheapest of the last three that fits",      \
      .theirs = {                                                              \
          NOT_HERE("tensor_model_parallel_size tensor_parallel_degree",        \
                   "there is no tensor parallelism: parallel.strategy = "      \
                   "\"zero3\" spreads the weights"),                           \
          NOT_HERE("pipeline_model_parallel_size pipeline_parallel_degree "    \
                   "pipeline",                                                 \
                   "there is no pipeline parallelism: parallel.strategy = "    \
                   "\"zero3\" spreads the weights"),                           \
          THEIRS("fsdp fsdp_config", "\"zero3\""),                             \
          ALSO("deepspeed zero_stage sharding_strategy"),                      \
          THEIRS("use_distributed_optimizer", "\"zero1\""),                    \
          CHOICES("FULL_SHARD", "\"zero3\""),                                  \
          CHOICES("SHARD_GRAD_OP", "\"zero2\""),                               \
          CHOICES("HYBRID_SHARD", "\"zero3\", with parallel.shard_degree"),    \
          CHOICES("NO_SHARD", "\"ddp\"") })                                    \
    S(parallel, INT(-1, 65536), shard_degree, "0", 0,                          \
      "of zero3: neighbouring ranks that have all weights together, a "        \
      "divisor of the ranks; 0: those of the fewest nodes with which it "      \
      "fits; -1: all ranks",                                                   \
      .theirs = { ALSO("data_parallel_shard_degree") })                        \
    S(parallel, INT(0, 1024), prefetch, "1", 0,                                \
      "of zero3: blocks of weights gathered ahead of their use")               \
    S(parallel, INT(1, 256), expert_degree, "1",                               \
      TRAIN_STAYS_IF_PACKED | TRAIN_STAYS_IF_RUN,                              \
      "of zero2 and zero3: neighbouring ranks that share the experts, a "      \
      "divisor of model.experts and of the ranks; tokens travel instead of "   \
      "weights",                                                               \
      .theirs = { ALSO("expert_model_parallel_size expert_parallel_degree") }) \
    S(parallel, INT(1, 1024), sequence_chunks, "1", SETTING_STAYS,             \
      "of zero2 and zero3: parts of each sequence whose gradients are "        \
      "added one after the other, a divisor of data.seq_len")                  \
    S(parallel, INT(1, 1024), sequence_degree, "1", TRAIN_STAYS_IF_RUN,        \
      "neighbouring ranks that share a microbatch's sequences, a divisor "     \
      "of parallel.sequence_chunks and of the ranks",                          \
      .theirs = { ALSO("context_parallel_size context_parallel_degree") })     \
    S(parallel, CHOICE(parallel_reduce), reduce_precision, "fp32",             \
      TRAIN_STAYS_IF_RUN,                                                      \
      "of gradients on their way to another rank; bf16 needs zero2 or "        \
      "zero3, and another determinism than elastic")                           \
    S(parallel, CHOICE(parallel_determinism), determinism, "elastic",          \
      SETTING_STAYS, "elastic: same bits for any number of ranks",             \
      .theirs = { ALSO("deterministic") })                                     \
    S(parallel, CHOICE(comm_exchange), exchange, "auto", 0,                    \
      "how tensors travel between GPUs; auto: by NCCL, see "                   \
      "hardware.fallback; nccl: also where two ranks seem to share a GPU; "    \
      "staged: through host memory")                                           \
    S(parallel, INT(0, 65536), slots, "0", SETTING_STAYS,                      \
      "canonical parts of a global batch, with ddp and zero1 at least the "    \
      "number of ranks, with zero2 and zero3 the fewer the less memory; 0: "   \
      "the largest power of two up to 8 that divides it")                      \
    S(parallel, FLOAT(0.1, 1e6), timeout_s, "300", 0,                          \
      "seconds to wait for another rank before naming it",                     \
      .theirs = { ALSO("dist_timeout") })                                      \
    S(parallel, FLOAT(0, 1e6), lost_s, "10", 0,                                \
      "a rank without a sign of life for so many seconds is named, as is one " \
      "whose step takes longer than that and than five of those before, and "  \
      "the log says what all are at; 0, "                                      \
      "as for a debugger: only after timeout_s")                               \
    S(parallel, BOOL, allow_arithmetic_change, "false", 0,                     \
      "resume with another backend, GPUs' libraries or version of "            \
      "arithmetic although the bits will differ")

#define HARDWARE_SETTINGS(S)                                                   \
    S(hardware, INT(0, 4096), threads, "0", SETTING_LOCAL,                     \
      "threads per rank; 0: from affinity and ranks on the node",              \
      .theirs = {                                                              \
          ALSO("num_threads"),                                                 \
          THEIRS("num_workers", "of a rank; data is read without workers") })  \
    S(hardware, CHOICE(hardware_backend), backend, "auto", SETTING_LOCAL,      \
      "what computes; auto: the GPU, where there is one, this build can "      \
      "use it and hardware.kernel_set is auto, else the processor",            \
      .theirs = { ALSO("device") })                                            \
    S(hardware, STRING, kernel_set, "auto", SETTING_LOCAL,                     \
      "of the processor, for tests: auto, avx512, avx2 or generic; decides "   \
      "speed, never bits")                                                     \
    S(hardware, CHOICE(hardware_graphs), graphs, "auto", SETTING_LOCAL,        \
      "of a GPU with ddp and zero1: a microbatch as one launch, not op by "    \
      "op; the same bits")                                                     \
    S(hardware, CHOICE(hardware_fallback), fallback, "auto", SETTING_LOCAL,    \
      "where NCCL, cuDNN or cuBLASLt are missing or have nothing for a "       \
      "shape, ranks share a GPU or GPUs are idle: end with the reason, or "    \
      "go on more slowly and say so; auto: refuse, with one rank warn")        \
    S(hardware, FLOAT(0, 1e18), peak_flops, "0", SETTING_LOCAL,                \
      "FLOP/s of one rank, for mfu; 0: those of its GPU, or measured")

/* Those of no group. */
#define ALONE_SETTINGS(S)                                                      \
    S(algorithms, LIST(algorithm), "()", SETTING_STAYS_ADDED,                  \
      "what changes how the run trains, in order: ( { name = \"ema\"; "        \
      "half_life = \"100ba\"; }, ... )")                                       \
    S(finish, LIST(finish), "()", TRAIN_DECIDES_ADDED,                         \
      "when the run ends before train.max_duration: ( { name = "               \
      "\"early_stop\"; patience = \"2000ba\"; } )",                            \
      .theirs = {                                                              \
          THEIRS("early_stopping*",                                            \
                 "( { name = \"early_stop\"; patience = \"2000ba\"; } )") })   \
    S(plugins, LIST(plugin), "()", 0,                                          \
      "shared objects that listen to the run (tessera_plugin.h): "             \
      "[ \"path.so\" ], or ( { path = \"path.so\"; options = \"...\"; } )")
/* All groups, in the order of --help and config.cfg; START for those of a
 * group's rows whose fields are not in its member of struct train_settings. */
#define TRAIN_GROUPS(S, START)                                                 \
    RUN_SETTINGS(S)                                                            \
    MODEL_SETTINGS(S)                                                          \
    START_SETTINGS(START)                                                      \
    MEMORY_SETTINGS(S)                                                         \
    DATA_SETTINGS(S)                                                           \
    TRAIN_SETTINGS(S)                                                          \
    LORA_SETTINGS(S)                                                           \
    OPTIMIZER_SETTINGS(S)                                                      \
    SCHEDULER_SETTINGS(S)                                                      \
    EVAL_SETTINGS(S)                                                           \
    GENERATE_SETTINGS(S)                                                       \
    CHECKPOINT_SETTINGS(S)                                                     \
    PARALLEL_SETTINGS(S)                                                       \
    HARDWARE_SETTINGS(S)                                                       \
    TRACKING_SETTINGS(S)                                                       \
    HOOK_SETTINGS(S)                                                           \
    MONITOR_SETTINGS(S)                                                        \
    LOG_SETTINGS(S)                                                            \
    WATCH_SETTINGS(S)
